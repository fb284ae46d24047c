/* PAGEMAP_SCAN of linux/fs.h (kernel >= 6.7), for older headers, and the borders between long and short runs. */
#pragma once

#include <linux/ioctl.h>
#include <stdint.h>

#define COP_PAGE_IS_WPALLOWED (1ULL << 0)
#define COP_PAGE_IS_WRITTEN (1ULL << 1)
#define COP_PAGE_IS_FILE (1ULL << 2)
#define COP_PAGE_IS_PRESENT (1ULL << 3)
#define COP_PAGE_IS_SWAPPED (1ULL << 4)
#define COP_PAGE_IS_PFNZERO (1ULL << 5)
#define COP_PAGE_IS_HUGE (1ULL << 6)
#define COP_PAGE_IS_GUARD (1ULL << 8)

#define COP_PM_SCAN_WP_MATCHING (1ULL << 0)
#define COP_PM_SCAN_CHECK_WPASYNC (1ULL << 1)

struct cop_page_region {
        uint64_t start, end, categories;
};

struct cop_scan_arg {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define COP_PAGEMAP_SCAN _IOWR('f', 16, struct cop_scan_arg)

/* Runs of at least this many pages stand for themselves; shorter ones may become patches of what is around them, and are written apart. */
#define COP_RUN_LONG 8
/* Of anonymous memory that is written to, runs of at least this many are mapped from the page file at thaw, shorter ones copied; and of
 * what lies behind a guard area. */
#define COP_RUN_MAPPED 2
#define COP_RUN_MAPPED_GUARDED 4
/* A process with no more pages than these gets copies of all. */
#define COP_PAGES_SMALL 512
