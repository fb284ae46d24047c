/* Which pages a program is going to write to.
 *
 * Theory of operation.  An interpreter that runs a small cell writes to much the same pages each time: its stacks, free lists and counts of
 * references.  A thaw maps most of them, and each would be a fault in the first cell: 2 to 4 us, 1,000 times and more.  So the image has
 * them as advice, and the thaw makes the copies itself, with two tasks (restore_pages.c); or nobody waits for it, where it was ahead.
 *
 * They are what the tracker saw written since the image before, but for long runs, which are data.  When there is still too much of it, it
 * says nothing, and after a rest there is next to nothing to be seen: then the parent's are kept.
 *
 * Where nothing was tracked, what a process has of its own where a thaw has mapped a page file is what it wrote since, and what the thaw copied.
 * Patches are copied in any case, so the rest is the list.  It hardly becomes shorter that way: when it is too long there is none, and the next
 * image has what was really written.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "freezer/dump.h"
#include "freezer/parent.h"
#include "freezer/tracker.h"

#define PAGES_MAX 2048                    /* of all */
#define PAGES_AND_PATCHES (4 * PAGES_MAX) /* the same before patches are taken off */
#define RUN_MAX 64                        /* pages in one run; more is data */

/* The next run from *at on that was written, or NULL. */
static const struct cop_run *next_written(const struct cop_runs *runs, size_t *at)
{
        while (*at < runs->count && !runs->list[*at].written)
                (*at)++;
        return *at < runs->count ? &runs->list[*at] : NULL;
}

/* What was written of two ascending lists, none twice and no data; it ends where there are more than `max` pages. */
static int join(const struct cop_runs *a, const struct cop_runs *b, uint64_t max, struct cop_runs *to)
{
        const struct cop_run *x, *y, *run;
        size_t i = 0, k = 0;
        uint64_t end = 0, pages = 0;
        int r = 0;

        while (r == 0 && pages <= max) {
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
                pages += (end - start) / IMG_PAGE;
                r = cop_runs_add(to, start, end, true);
        }
        return r;
}

/* The runs of a process where it maps page files. */
static int find_thawed(const struct cop_dump *d, uint32_t proc, struct cop_runs *to)
{
        const struct cop_runs *runs = &d->scans[proc].runs;
        const struct cop_vmas *vs = &d->vmas[proc];
        size_t k = 0;
        int r = 0;

        for (size_t i = 0; i < vs->count && r == 0; i++) {
                const struct cop_vma *v = &vs->list[i];
                if (v->flags & IMG_VMA_SHARED || cop_dump_source_of(d, v) < 0)
                        continue;
                while (k < runs->count && runs->list[k].end <= v->start)
                        k++;
                for (size_t n = k; n < runs->count && runs->list[n].start < v->end && r == 0; n++)
                        r = cop_runs_add(to, MAX_OF(runs->list[n].start, v->start), MIN_OF(runs->list[n].end, v->end),
                                         true);
        }
        return r;
}

int cop_dump_hot_begin(const struct cop_dump *d, uint32_t proc, struct cop_runs *ret)
{
        const struct cop_dump_scan *scan = &d->scans[proc];
        struct cop_runs thawed = {0}, none = {0};

        if (scan->tracked)
                return join(&scan->tracked->looked, &scan->runs, PAGES_MAX, ret);
        int r = find_thawed(d, proc, &thawed);
        if (r == 0)
                r = join(&thawed, &none, PAGES_AND_PATCHES, ret);
        free(thawed.list);
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

static uint64_t count_pages(const struct cop_runs *runs)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < runs->count; i++)
                bytes += runs->list[i].end - runs->list[i].start;
        return bytes / IMG_PAGE;
}

/* Adds what of a run is no patch.  Runs and patches both ascend: *at is the first patch that may reach into this run or a later one. */
static int add_unpatched(const struct cop_dump *d, const struct img_vma *v, uint32_t *at, struct cop_run run,
                         struct cop_runs *to)
{
        int r = 0;

        for (; *at < v->patches && r == 0; (*at)++) {
                const struct img_extent *e = cop_image_record(d->writer, IMG_EXTENTS, v->first_patch + *at);
                uint64_t end = e->address + (uint64_t)e->pages * IMG_PAGE;
                if (e->address >= run.end)
                        break;
                if (e->address > run.start)
                        r = cop_runs_add(to, run.start, e->address, true);
                run.start = MAX_OF(run.start, end);
                if (end > run.end)
                        break;
        }
        return r == 0 && run.start < run.end ? cop_runs_add(to, run.start, run.end, true) : r;
}

/* Of the runs what lies in a process's writable areas and is no patch there. */
static int find_unpatched(const struct cop_dump *d, uint32_t proc, const struct cop_runs *runs, struct cop_runs *to)
{
        const struct img_proc *p = cop_image_record(d->writer, IMG_PROCS, proc);
        size_t k = 0;
        int r = 0;

        for (uint32_t i = 0; i < p->vmas && r == 0; i++) {
                const struct img_vma *v = cop_image_record(d->writer, IMG_VMAS, p->first_vma + i);
                while (k < runs->count && runs->list[k].end <= v->start)
                        k++;
                uint32_t at = 0;
                for (size_t n = k;
                     n < runs->count && runs->list[n].start < v->end && v->flags & IMG_VMA_WRITE && r == 0; n++)
                        r = add_unpatched(d, v, &at,
                                          (struct cop_run){.start = MAX_OF(runs->list[n].start, v->start),
                                                           .end = MIN_OF(runs->list[n].end, v->end)},
                                          to);
        }
        return r;
}

static void add_list(struct cop_dump *d, uint32_t proc, const struct cop_runs *runs)
{
        uint32_t count;
        uint64_t before, pages = count_pages(runs);
        const struct img_hot *old = of_parent(d, d->tree.procs[proc].nspid, &count, &before);

        if (pages > PAGES_MAX || pages < before / 2)
                for (uint32_t i = 0; i < count; i++)
                        cop_image_add(d->writer, IMG_HOT, &(struct img_hot){old[i].address, old[i].pages, proc});
        else
                for (size_t i = 0; i < runs->count; i++)
                        cop_image_add(d->writer, IMG_HOT,
                                      &(struct img_hot){
                                              runs->list[i].start,
                                              (uint32_t)((runs->list[i].end - runs->list[i].start) / IMG_PAGE), proc});
}

int cop_dump_hot_end(struct cop_dump *d, uint32_t proc, const struct cop_runs *runs)
{
        struct cop_runs unpatched = {0};
        int r = 0;

        if (d->scans[proc].tracked)
                add_list(d, proc, runs);
        else if (count_pages(runs) <= PAGES_AND_PATCHES) {
                r = find_unpatched(d, proc, runs, &unpatched);
                if (r == 0 && count_pages(&unpatched) <= PAGES_MAX)
                        add_list(d, proc, &unpatched);
        }
        free(unpatched.list);
        return r;
}
