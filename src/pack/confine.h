/* What this program may still do once its descriptors are open: nothing outside one folder, and few system calls. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* root_fd becomes the root and the current folder; of root's rights those over owners, modes and access of files remain (writes), or
 * the right to read them.  unsupported when not root. */
int cop_confine(int root_fd, bool writes, struct cop_error *err);
