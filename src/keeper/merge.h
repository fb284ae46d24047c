/* Merging two adjacent layers of a stack into one, so that sandboxes which sleep often do not reach the limit of an overlay.
 *
 * target becomes what upper over lower shows, as a layer: names that upper hides and whiteouts stay hidden for what lies below both.
 * Files are hard links into the two, which are immutable and must lie on the same filesystem.  Takes as long as there are
 * names: to be called in a process of its own.
 *
 * Errors: unsupported when a layer has what only an overlay with redirects or metacopies makes (ours has neither); disk_full,
 * io_error.  target is then to be deleted.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Descriptors of folders, borrowed; target is empty. */
int cop_layer_merge(int upper_fd, int lower_fd, int target_fd, struct cop_error *err);
/* A whole stack, topmost first, becomes the folder `target`, which appears when it is on disk; when it is there already, nothing
 * happens.  What a call that was cut off left beside it ("<target>.partial") is removed.  Errors: as above. */
int cop_layer_merge_stack(const char *const *layers, size_t count, const char *target, struct cop_error *err);
