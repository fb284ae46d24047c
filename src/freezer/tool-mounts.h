/* coppice-freeze: which mounts its thaw makes again. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* A thaw of coppice-freeze has the mounts of who calls it, and /proc and /dev/pts of its own.  -EOPNOTSUPP (not_freezable) by name when the
 * tree of this first process has another one: what is in it, and beneath it, would not be there. */
int cop_tool_check_mounts(pid_t root, struct cop_error *err);
