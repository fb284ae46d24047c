/* Which pages a program is going to write to.
 *
 * Theory of operation.  An interpreter that runs a small cell writes to much the same pages each time: its stacks, free lists and counts of
 * references.  A thaw maps most of them, and each would be a fault in the first cell: 2 to 4 us, 1,000 times and more.  So the image has
 * them as advice, and the thaw makes the copies itself, with two tasks (restore_pages.c); or nobody waits for it, where it was ahead.
 *
 * They are what the tracker saw written since the image before, but for long runs, which are data.  When there is still too much of it, it
 * says nothing, and after a rest there is next to nothing to be seen: then the parent's are kept.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "freezer/dump.h"
#include "freezer/parent.h"
#include "freezer/tracker.h"

#define PAGES_MAX 2048 /* of all */
#define RUN_MAX 64     /* pages in one run; more is data */

/* The next run from *at on that was written, or NULL. */
static const struct cop_run *next_written(const struct cop_runs *runs, size_t *at)
{
        while (*at < runs->count && !runs->list[*at].written)
                (*at)++;
        return *at < runs->count ? &runs->list[*at] : NULL;
}

/* What was written of two ascending lists, none twice and no data.  *ret_pages: how many pages; it ends where they are too many. */
static int join(const struct cop_runs *a, const struct cop_runs *b, struct cop_runs *to, uint64_t *ret_pages)
{
        const struct cop_run *x, *y, *run;
        size_t i = 0, k = 0;
        uint64_t end = 0;
        int r = 0;

        *ret_pages = 0;
        while (r == 0 && *ret_pages <= PAGES_MAX) {
                x = next_written(a, &i);
                y = next_written(b, &k);
                if (!x && !y)
                        break;
                run = x && (!y || x->start <= y->start) ? x : y;
                *(run == x ? &i : &k) += 1;
                uint64_t start = MAX_OF(run->start, end);
                if (start >= run->end)
                        continue;
                end = run->end;
                if (end - start > RUN_MAX * IMG_PAGE)
                        continue;
                *ret_pages += (end - start) / IMG_PAGE;
                r = cop_runs_add(to, start, end, true);
        }
        return r;
}

/* Those of a process in the parent image; *ret_pages: how many pages they are. */
static const struct img_hot *of_parent(const struct cop_dump *d, pid_t nspid, uint32_t *ret, uint64_t *ret_pages)
{
        const struct img_proc *p = cop_parent_proc(d->parent, nspid);
        const struct img_hot *list = p ? cop_image_hot(d->parent, p, ret) : NULL;

        *ret_pages = 0;
        if (!list)
                *ret = 0;
        for (uint32_t i = 0; i < *ret; i++)
                *ret_pages += list[i].pages;
        return list;
}

static int dump_process(struct cop_dump *d, uint32_t proc)
{
        const struct cop_dump_scan *scan = &d->scans[proc];
        struct cop_runs runs = {0};
        uint64_t pages = 0, before;
        uint32_t count;
        const struct img_hot *old = of_parent(d, d->tree.procs[proc].nspid, &count, &before);
        int r = 0;

        if (scan->tracked)
                r = join(&scan->tracked->looked, &scan->runs, &runs, &pages);
        if (pages > PAGES_MAX || pages < before / 2)
                for (uint32_t i = 0; i < count; i++)
                        cop_image_add(d->writer, IMG_HOT, &(struct img_hot){old[i].address, old[i].pages, proc});
        else
                for (size_t i = 0; i < runs.count; i++)
                        cop_image_add(d->writer, IMG_HOT,
                                      &(struct img_hot){runs.list[i].start,
                                                        (uint32_t)((runs.list[i].end - runs.list[i].start) / IMG_PAGE),
                                                        proc});
        free(runs.list);
        return r;
}

int cop_dump_hot(struct cop_dump *d, struct cop_error *err)
{
        int r = 0;

        for (uint32_t i = 0; i < d->tree.count && r == 0; i++)
                r = d->tree.procs[i].zombie ? 0 : dump_process(d, i);
        return r < 0 ? cop_error_errno(err, -r, "collecting memory") : 0;
}
