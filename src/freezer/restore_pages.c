/* Pages that a process gets copies of while it is rebuilt.
 *
 * Theory of operation.  Extents are copied from the page files with preadv, patches after them.  Then each hot page of what was mapped is
 * written to without being changed: a copy that its program would soon make itself, by a fault in the middle of its work.
 * Faults on memory cost 2 to 4 us, and go on side by side: so where pages are many a second task, which shares memory and
 * descriptors with the first, does the upper half and ends.
 */
#include <linux/sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/restore_table.h"

#define SHARED_PAGES 256

/* Pieces to be copied, gathered until the file position jumps. */
struct copies {
        struct iovec *iov; /* in the region's data */
        size_t count;
        uint32_t source;
        uint64_t offset, bytes;
};

static void flush_copies(struct cop_restore *r, struct cop_region *g, struct cop_table *t, struct copies *c)
{
        if (c->count == 0)
                return;
        struct cop_op *op = cop_table_add(g, t, COP_OP_EXPECT, SYS_preadv, (uint64_t)r->sources[c->source], PTR(c->iov),
                                          c->count, c->offset, 0, 0);
        op->expect = (int64_t)c->bytes;
        c->count = 0;
}

static int compare_offset(const void *a, const void *b)
{
        const struct img_extent *x = a, *y = b;

        if (x->source != y->source)
                return x->source < y->source ? -1 : 1;
        return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What of it lies in [from, to). */
static bool cut(struct img_extent *e, uint64_t from, uint64_t to)
{
        uint64_t start = MAX_OF(e->address, from), end = MIN_OF(e->address + (uint64_t)e->pages * IMG_PAGE, to);

        if (start >= end)
                return false;
        e->offset += start - e->address;
        e->address = start;
        e->pages = (uint32_t)((end - start) / IMG_PAGE);
        return true;
}

static void add_copies(struct cop_restore *r, struct cop_region *g, struct cop_table *t,
                       const struct cop_pieces *pieces, uint64_t from, uint64_t to)
{
        struct copies c = {0};
        size_t n = 0;
        _cleanup_free_ struct img_extent *list = malloc((pieces->count + 1) * sizeof(*list));

        if (!list) {
                g->full = true;
                return;
        }
        for (size_t i = 0; i < pieces->count; i++) {
                list[n] = pieces->list[i];
                n += cut(&list[n], from, to);
        }
        qsort(list, n, sizeof(*list), compare_offset);
        for (size_t i = 0; i < n; i++) {
                const struct img_extent *e = &list[i];
                uint64_t bytes = (uint64_t)e->pages * IMG_PAGE;
                if (c.count > 0 && (c.source != e->source || c.offset + c.bytes != e->offset || c.count == 1024 ||
                                    c.bytes + bytes > 1U << 30))
                        flush_copies(r, g, t, &c);
                if (c.count == 0) {
                        c.iov = (struct iovec *)g->data;
                        c.source = e->source;
                        c.offset = e->offset;
                        c.bytes = 0;
                }
                struct iovec *iov = (struct iovec *)cop_region_put(g, NULL, sizeof(*iov));
                *iov = (struct iovec){.iov_base = (void *)(uintptr_t)e->address, .iov_len = bytes};
                c.count++;
                c.bytes += bytes;
        }
        flush_copies(r, g, t, &c);
}

static void add_touches(struct cop_region *g, struct cop_table *t, const struct cop_pieces *pieces, uint64_t from,
                        uint64_t to)
{
        for (size_t i = 0; i < pieces->count; i++) {
                struct img_extent e = pieces->list[i];
                if (cut(&e, from, to))
                        cop_table_add(g, t, COP_OP_TOUCH, 0, e.address, e.pages, 0, 0, 0, 0);
        }
}

static void add_all(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct cop_pages *pages,
                    uint64_t from, uint64_t to)
{
        add_copies(r, g, t, &pages->extents, from, to);
        add_copies(r, g, t, &pages->patches, from, to);
        add_touches(g, t, &pages->hot, from, to);
}

/* The address below which half of the pages lie; 0 where a second task would not be worth its making. */
static uint64_t halfway(const struct cop_restore *r, const struct cop_pages *pages)
{
        const struct cop_pieces *lists[] = {&pages->extents, &pages->patches, &pages->hot};
        size_t at[ELEMENTSOF(lists)] = {0};
        uint64_t total = 0, sum = 0, border = 0;

        for (size_t k = 0; k < ELEMENTSOF(lists); k++)
                for (size_t i = 0; i < lists[k]->count; i++)
                        total += lists[k]->list[i].pages;
        /* It is gone before there are threads: so where there will be some, no limit on tasks is in its way. */
        if (total < SHARED_PAGES || RESTORE_PROC(r, r->self)->threads < 2)
                return 0;
        while (sum < total / 2) {
                const struct img_extent *lowest = NULL;
                size_t of = 0;
                for (size_t k = 0; k < ELEMENTSOF(lists); k++)
                        if (at[k] < lists[k]->count && (!lowest || lists[k]->list[at[k]].address < lowest->address)) {
                                lowest = &lists[k]->list[at[k]];
                                of = k;
                        }
                if (!lowest)
                        break;
                at[of]++;
                border = lowest->address;
                sum += lowest->pages;
        }
        return border;
}

void cop_restore_pages(struct cop_restore *r, struct cop_region *g, const struct cop_pages *pages)
{
        cpu_set_t cpus;
        uint64_t border = cop_other_cpus(&cpus) ? halfway(r, pages) : 0;
        pid_t pid = border ? cop_restore_spare_pid(r, r->self) : -1;
        struct clone_args args = {.flags = CLONE_VM | CLONE_FS | CLONE_FILES,
                                  .set_tid = PTR(cop_region_put(g, &pid, sizeof(pid))),
                                  .set_tid_size = 1};

        if (pid <= 0) {
                add_all(r, g, &g->main, pages, 0, UINT64_MAX);
                return;
        }
        struct cop_op *op = cop_table_add(g, &g->main, COP_OP_EXPECT | COP_OP_CHILD, SYS_clone3,
                                          PTR(cop_region_put(g, &args, sizeof(args))), sizeof(args), 0, 0, 0, 0);
        op->expect = pid;
        op->child = PTR(g->helper.ops);
        cop_table_add(g, &g->main, 0, SYS_sched_setaffinity, (uint64_t)pid, sizeof(cpus),
                      PTR(cop_region_put(g, &cpus, sizeof(cpus))), 0, 0, 0);
        add_all(r, g, &g->helper, pages, border, UINT64_MAX);
        cop_table_add(g, &g->helper, 0, SYS_exit, 0, 0, 0, 0, 0, 0);
        add_all(r, g, &g->main, pages, 0, border);
        cop_table_add(g, &g->main, COP_OP_EXPECT | COP_OP_RETRY, SYS_wait4, (uint64_t)pid, 0, __WALL, 0, 0, 0)->expect =
                pid;
}
