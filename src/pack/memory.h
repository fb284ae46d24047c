/* Whether memory from elsewhere may be thawed here. */
#pragma once

#include "base/err.h"

/* root_fd: a node's folder, unpacked.  The image and the keeper's state are whole (every checksum), fit this machine, and give their
 * processes no more than a sandbox of this engine gives: its capabilities, its system call filter, no core dumps.
 * Errors: image_mismatch, pack_damaged. */
int cop_pack_check_memory(int root_fd, struct cop_error *err);
