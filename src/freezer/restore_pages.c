/* Pages that a process gets copies of while it is rebuilt.
 *
 * Theory of operation.  Extents are copied from the page files, patches after them.  Then each hot page of what was mapped gets the copy
 * that its program would soon make itself, by a fault in the middle of its work.
 *
 * None of that is done by faults.  An exception costs a microsecond on bare metal, 2 to 4 in most virtual machines, and 10 where the
 * hypervisor follows page tables in software; it is the largest part of a copy's price.  MADV_POPULATE_WRITE has the kernel make memory
 * without one, so that what is to be copied can be read into it.
 * At last what will be needed soon is written to, without being changed: under such a hypervisor the first touch of a page costs something
 * (7 us) even where it is there, and here two tasks share that, or nobody waits for it.
 *
 * Where pages are many a second task, which shares memory and descriptors with the first, does the upper half and ends.
 */
#include <linux/sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/restore_table.h"

#define SHARED_PAGES 256
#define PIECES_MAX 1024 /* UIO_MAXIOV */
#define TOUCHED_MAX 64  /* pages of a piece; more is data */
#ifndef PIDFD_SELF
#define PIDFD_SELF (-10001) /* linux/pidfd.h, since 6.14: of the thread group */
#endif

/* Copies that one call makes: their bytes follow each other in a page file. */
struct copies {
        struct cop_table *table; /* borrowed */
        uint32_t source;
        uint64_t offset, bytes; /* in the page file */
        struct iovec *to;       /* owned; PIECES_MAX */
        size_t count;
};

static void flush_copies(struct cop_restore *r, struct cop_region *g, struct copies *c)
{
        if (c->count == 0)
                return;
        struct cop_op *op =
                cop_table_add(g, c->table, COP_OP_EXPECT, SYS_preadv, (uint64_t)r->sources[c->source],
                              PTR(cop_region_put(g, c->to, c->count * sizeof(*c->to))), c->count, c->offset, 0, 0);
        op->expect = (int64_t)c->bytes;
        c->count = 0;
        c->bytes = 0;
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

/* Advice: what fails here (before Linux 6.14, or where it may not be written) is done by the touches, or by the program's own faults. */
static void add_populate(struct cop_region *g, struct cop_table *t, const struct iovec *iov, size_t count)
{
        if (count > 0)
                cop_table_add(g, t, 0, SYS_process_madvise, (uint64_t)(int64_t)PIDFD_SELF,
                              PTR(cop_region_put(g, iov, count * sizeof(*iov))), count, MADV_POPULATE_WRITE, 0, 0);
}

static void add_populates(struct cop_region *g, struct cop_table *t, const struct cop_pieces *pieces, uint64_t from,
                          uint64_t to)
{
        _cleanup_free_ struct iovec *iov = malloc(PIECES_MAX * sizeof(*iov));
        size_t n = 0;

        for (size_t i = 0; iov && i < pieces->count; i++) {
                struct img_extent e = pieces->list[i];
                if (!cut(&e, from, to))
                        continue;
                if (n == PIECES_MAX) {
                        add_populate(g, t, iov, n);
                        n = 0;
                }
                iov[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)e.address,
                                          .iov_len = (uint64_t)e.pages * IMG_PAGE};
        }
        add_populate(g, t, iov, n);
}

/* e: no more than COP_COPY_MAX. */
static void add_copy(struct cop_restore *r, struct cop_region *g, struct copies *c, const struct img_extent *e)
{
        uint64_t bytes = (uint64_t)e->pages * IMG_PAGE;

        if (c->count > 0 && (c->source != e->source || e->offset != c->offset + c->bytes || c->count == PIECES_MAX ||
                             c->bytes + bytes > COP_COPY_MAX))
                flush_copies(r, g, c);
        if (c->count == 0) {
                c->source = e->source;
                c->offset = e->offset;
        }
        c->to[c->count++] = (struct iovec){.iov_base = (void *)(uintptr_t)e->address, .iov_len = bytes};
        c->bytes += bytes;
}

static void add_copies(struct cop_restore *r, struct cop_region *g, struct cop_table *t,
                       const struct cop_pieces *pieces, uint64_t from, uint64_t to)
{
        size_t n = 0;
        _cleanup_free_ struct img_extent *list = malloc((pieces->count + 1) * sizeof(*list));
        _cleanup_free_ struct iovec *iov = malloc(PIECES_MAX * sizeof(*iov));
        struct copies c = {.table = t, .to = iov};

        if (!list || !iov) {
                g->full = true;
                return;
        }
        add_populates(g, t, pieces, from, to);
        for (size_t i = 0; i < pieces->count; i++) {
                list[n] = pieces->list[i];
                n += cut(&list[n], from, to);
        }
        qsort(list, n, sizeof(*list), cop_image_compare_places);
        for (size_t i = 0; i < n; i++) {
                struct img_extent rest = list[i], e = rest;
                for (; rest.pages > 0; rest.pages -= e.pages) {
                        e.pages = MIN_OF(rest.pages, (uint32_t)(COP_COPY_MAX / IMG_PAGE));
                        add_copy(r, g, &c, &e);
                        e.address += (uint64_t)e.pages * IMG_PAGE;
                        e.offset += (uint64_t)e.pages * IMG_PAGE;
                }
        }
        flush_copies(r, g, &c);
}

static void add_touches(struct cop_region *g, struct cop_table *t, const struct cop_pieces *pieces, uint64_t from,
                        uint64_t to)
{
        for (size_t i = 0; i < pieces->count; i++) {
                struct img_extent e = pieces->list[i];
                if (cut(&e, from, to) && e.pages <= TOUCHED_MAX)
                        cop_table_add(g, t, COP_OP_TOUCH, 0, e.address, e.pages, 0, 0, 0, 0);
        }
}

static void add_all(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct cop_pages *pages,
                    uint64_t from, uint64_t to)
{
        add_copies(r, g, t, &pages->extents, from, to);
        add_copies(r, g, t, &pages->patches, from, to);
        add_populates(g, t, &pages->hot, from, to);
        add_touches(g, t, &pages->hot, from, to);
        add_touches(g, t, &pages->patches, from, to);
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
