/* Folders as tar streams, for `coppice cp`. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Writes the tree at `path` as a pax archive to fd; member names begin with `prefix` ("" = relative to the folder itself).
 * Sockets, FIFOs and devices are left out, and with a remark on stderr links that lead out of the folder. */
int cop_pack(const char *path, const char *prefix, int fd, struct cop_error *err);
/* Reads an archive from fd and extracts it below `folder` (made when missing), without the first component of its names when
 * strip is set.  The archive comes out of a sandbox and is foreign: nothing leaves the folder, nothing becomes set-uid, no
 * link is followed, owners are the caller's. */
int cop_unpack(int fd, const char *folder, bool strip, struct cop_error *err);
