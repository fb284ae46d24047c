/* What the parent image says of a process's pages. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "freezer/image.h"

/* The process with this id, in its own namespace, that lives in the image (NULL for no image); NULL: none. */
const struct img_proc *cop_parent_proc(const struct cop_image *im, pid_t nspid);
/* Where the image has the pages of an area from `at` on: a piece of one extent, that ends at `end` at the latest.  A patch goes
 * before what it lies on.  False: the page at `at` is zero there. */
bool cop_parent_piece(const struct cop_image *im, const struct img_vma *v, uint64_t at, uint64_t end,
                      struct img_extent *ret);
/* The area that [start, end), which is mapped from a page file of the image at `offset`, is a part of, when that is one of a file: of this
 * process, or of any that has such pages there when p is NULL (forked since).  NULL: it is anonymous memory. */
const struct img_vma *cop_parent_file_area(const struct cop_image *im, const struct img_proc *p, uint64_t start,
                                           uint64_t end, uint32_t source, uint64_t offset);
/* The page at `address` of that process (may be NULL); false: the image has none there. */
bool cop_parent_page(const struct cop_image *im, const struct img_proc *p, uint64_t address, void *ret);
/* Is it as it is here? */
bool cop_parent_has(const struct cop_image *im, const struct img_proc *p, uint64_t address, const void *page);
