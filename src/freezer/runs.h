/* Runs of pages: which are worth saving (PAGEMAP_SCAN), and copying them into a page file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "freezer/image.h"
#include "freezer/pagemap.h"
#include "freezer/tracee.h"

struct cop_run {
        uint64_t start, end;
        bool written; /* since the last freeze that tracked writes; always, where none did */
};

struct cop_runs {
        struct cop_run *list; /* owned; ascending */
        size_t count, allocated;
};

/* Length of the next piece of a run that begins at `at`: up to a border of COP_COPY_SIZE when the run is long enough to
 * hold a whole one; *ret_aligned tells whether it is to be placed so. */
uint64_t cop_run_piece(uint64_t run_start, uint64_t run_end, uint64_t at, bool *ret_aligned);
int cop_runs_add(struct cop_runs *r, uint64_t start, uint64_t end, bool written);
enum cop_scan_flags {
        COP_SCAN_PROTECT =
                1, /* write-protect what was written, in the same step; areas under a tracker only: the kernel passes
                                   over others then */
        COP_SCAN_WRITTEN = 2,   /* only what was written */
        COP_SCAN_ANONYMOUS = 4, /* no page here is of a file */
};
/* The categories of PAGEMAP_SCAN that mark guard pages (MADV_GUARD_INSTALL): none before kernel 6.15, where asking for it is EINVAL. */
uint64_t cop_scan_guard(int pagemap_fd);
/* Where a PAGEMAP_SCAN that gave n regions has to go on.  Not arg->walk_end alone: the kernel (up to 6.18 at least) leaves there where
 * its own buffer of 512 regions was last full, although it went on to the end; starting again from it would report pages twice,
 * and those that the first report has just protected as unwritten.  A scan that did not fill the caller's array is complete. */
uint64_t cop_scan_next(const struct cop_scan_arg *arg, const struct cop_page_region *regions, long n);
/* Adds the private pages of areas that are not of a file and not zero.  Areas come in ascending order; those that follow each other are
 * scanned with one call (what lies in between too), when their flags are equal, or when one is too small for the question
 * whose a page is to cost anything.  cop_scan_end scans what is left. */
struct cop_scan {
        struct cop_runs *runs; /* borrowed */
        int pagemap_fd;        /* borrowed */
        unsigned flags;
        uint64_t start, end; /* not scanned yet; end 0: nothing */
};
int cop_scan_area(struct cop_scan *s, uint64_t start, uint64_t end, unsigned flags);
int cop_scan_end(struct cop_scan *s);

/* A huge page: page files hold long runs in such pieces, at offsets that match their addresses modulo this, so that the
 * page cache keeps each in one folio and a thaw maps it with one entry. */
#define COP_COPY_SIZE (2UL << 20)
#define COP_COPY_BATCH (128UL << 10) /* shorter pieces are gathered up to this: it stays in the processor's cache */
#define COP_COPY_ALIGNED 1ULL        /* in the checksum of an extent still to be written: keep the congruence */
#define COP_COPY_IOVS 256

/* Copies pages of one process into the page file. */
struct cop_page_copy {
        struct cop_image_writer *writer; /* borrowed */
        const struct cop_proc *proc;     /* borrowed */
        char *buffer;                    /* borrowed, COP_COPY_SIZE */
        struct img_extent *array;        /* borrowed; stays where it is meanwhile */
        uint64_t pages;                  /* written so far */
        bool may_vanish; /* the process runs: pages that are gone meanwhile are no error (written as zeros) */
        /* Pages that the parent image has as they are now are not written: extents of one page each, those that are known are
         * left with 0 pages, neighbours become one (and the others are left with 0).  NULL: all are written. */
        const struct cop_image *parent; /* borrowed */
        const struct img_proc *known;   /* borrowed: the process in the parent */

        /* A batch that is being gathered. */
        struct iovec remote[COP_COPY_IOVS];
        uint32_t extent[COP_COPY_IOVS];
        size_t count, bytes;
        bool aligned; /* it is one aligned piece */
};
/* Copies those of the first `count` extents whose source is IMG_NONE (address and pages filled; at most COP_COPY_SIZE each), and fills
 * source, offset and checksum.  Those shorter than COP_RUN_LONG come first, so that they lie together in the file and a thaw reads
 * them with few calls; when they are many, with the help of a thread on another processor, but not when `alone` is set. */
int cop_page_copy_extents(struct cop_page_copy *c, uint32_t count, bool alone, struct cop_error *err);
