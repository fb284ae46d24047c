/* The tables of system calls that rebuild a process (tramp.h), and the region in which they lie: see restore_mem.c. */
#pragma once

#include <string.h>

#include "freezer/restore.h"

#define COP_THREAD_OPS 128       /* operations for one thread, without its signals */
#define COP_COPY_MAX (1UL << 30) /* bytes that one call copies: the kernel reads up to 2 GiB */
#define PTR(p) ((uint64_t)(uintptr_t)(p))

struct cop_table {
        struct cop_op *ops; /* in the region */
        size_t count, max;
};

struct cop_region {
        char *start;
        size_t size;
        char *data, *data_end; /* what calls point to */
        struct cop_table main;
        struct cop_table helper; /* of a second task that copies pages */
        bool late;               /* its threads set their filters when they have parked (cop_restore_filters_late) */
        uint32_t together;       /* filters that the first thread sets for all */
        uint32_t *arrived; /* in the data: threads but the first that have parked; NULL where nobody waits for them */
        uint64_t segments; /* where System V segments are attached, to be moved from there */
        uint64_t bounding; /* capabilities that the stub may still drop from its bounding set */
        bool full;
};

/* Pieces of memory: of an extent, ascending. */
struct cop_pieces {
        struct img_extent *list; /* borrowed */
        size_t count;
};

struct cop_pages {
        struct cop_pieces extents; /* copied from the page files */
        struct cop_pieces patches; /* copied after them */
        struct cop_pieces hot;     /* of what is mapped; offsets say nothing */
};

static inline struct cop_op *cop_table_add(struct cop_region *g, struct cop_table *t, uint32_t flags, long nr,
                                           uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
        if (t->count == t->max) {
                g->full = true;
                t->count = 0; /* caught at the end */
        }
        struct cop_op *op = &t->ops[t->count++];
        *op = (struct cop_op){.nr = (uint32_t)nr, .flags = flags, .arg = {a, b, c, d, e, f}};
        return op;
}

/* A copy of the data for a call to point to; without data only the room. */
static inline void *cop_region_put(struct cop_region *g, const void *data, size_t n)
{
        char *at = g->data;

        if (n > (size_t)(g->data_end - g->data)) {
                g->full = true;
                return g->start;
        }
        if (data)
                memcpy(at, data, n);
        g->data += (n + 15) & ~15UL;
        return at;
}

/* restore_process.c: everything but memory, up to the end of the table. */
void cop_restore_state(struct cop_restore *r, struct cop_region *g, const struct img_proc *p);
/* Signals and timers of the process and its threads. */
size_t cop_restore_signals(const struct cop_restore *r, const struct img_proc *p);
/* The highest number of its POSIX timers; -1: there are none, or they need not be counted up to. */
int32_t cop_restore_timers_to(const struct cop_restore *r, const struct img_proc *p);
/* restore_pages.c: all that is mapped is there by then. */
void cop_restore_pages(struct cop_restore *r, struct cop_region *g, const struct cop_pages *pages);
