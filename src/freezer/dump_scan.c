/* Which pages of the tree are worth saving.
 *
 * Looking at all page tables takes the longest of what has to be done in the stop (1.1 ms for 1 GiB), and asks nothing of the processes:
 * it is done by a thread on another processor, beside the descriptors.  Whatever runs code inside a process, which writes to its
 * memory, has to be over by then; and nobody reads the areas' `tracked` before the thread has been waited for.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/dump.h"
#include "freezer/runs.h"
#include "freezer/tracker.h"

#define WORTH_A_THREAD (64UL << 20) /* bytes of areas */

/* In tracked areas what was written is protected again: all that is protected here is written by cop_dump_memory, and nobody runs in
 * between.  In anonymous ones the kernel need not look at each page's owner. */
static int scan_areas(struct cop_dump *d, uint32_t proc, struct cop_dump_scan *s)
{
        bool protect = s->tracked && !(d->request->flags & COP_FREEZE_KILL);
        struct cop_scan scan = {.runs = &s->runs, .pagemap_fd = s->pagemap_fd};
        struct cop_vmas *vs = &d->vmas[proc];
        int r = 0;

        if (protect)
                cop_tracker_cover(d->request->tracker, d->tree.procs[proc].pid, vs);
        for (size_t i = 0; i < vs->count && r == 0; i++) {
                const struct cop_vma *v = &vs->list[i];
                if (v->special || v->flags & IMG_VMA_SHARED)
                        continue;
                r = cop_scan_area(&scan, v->start, v->end,
                                  (v->tracked ? COP_SCAN_PROTECT : 0U) | (v->ino == 0 ? COP_SCAN_ANONYMOUS : 0U));
        }
        if (r == 0)
                r = cop_scan_end(&scan);
        for (size_t k = 0; k < s->runs.count && !s->tracked; k++)
                s->runs.list[k].written = true;
        return r;
}

static void *scan_all(void *userdata)
{
        struct cop_dump *d = userdata;

        for (uint32_t i = 0; i < d->tree.count; i++) {
                struct cop_dump_scan *s = &d->scans[i];
                if (s->pagemap_fd >= 0 && (s->result = scan_areas(d, i, s)) < 0)
                        break;
        }
        return NULL;
}

static uint64_t size_of_all(const struct cop_dump *d)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < d->tree.count; i++)
                for (size_t k = 0; k < d->vmas[i].count; k++)
                        bytes += d->vmas[i].list[k].end - d->vmas[i].list[k].start;
        return bytes;
}

int cop_dump_scan_begin(struct cop_dump *d, struct cop_error *err)
{
        cpu_set_t cpus;

        d->scans = calloc(d->tree.count, sizeof(*d->scans));
        if (!d->scans)
                return cop_error_errno(err, ENOMEM, "scanning memory");
        for (uint32_t i = 0; i < d->tree.count; i++)
                d->scans[i].pagemap_fd = -EBADF;
        for (uint32_t i = 0; i < d->tree.count; i++) {
                const struct cop_proc *p = &d->tree.procs[i];
                if (p->zombie)
                        continue;
                if ((d->scans[i].pagemap_fd = openat(p->dir_fd, "pagemap", O_RDONLY | O_CLOEXEC)) < 0)
                        return cop_error_errno(err, errno, "opening pagemap of pid %d", p->nspid);
                if (d->request->tracker && d->tracking)
                        d->scans[i].tracked = cop_tracker_find(d->request->tracker, p->pid);
        }
        d->scanning = !d->guest && size_of_all(d) >= WORTH_A_THREAD && cop_other_cpus(&cpus) &&
                      cop_thread_start(&d->scanner, &cpus, scan_all, d) == 0;
        if (!d->scanning)
                scan_all(d);
        return 0;
}

int cop_dump_scan_end(struct cop_dump *d, struct cop_error *err)
{
        if (d->scanning)
                pthread_join(d->scanner, NULL);
        d->scanning = false;
        for (uint32_t i = 0; d->scans && i < d->tree.count; i++)
                if (d->scans[i].result < 0)
                        return cop_error_errno(err, -d->scans[i].result, "scanning memory of pid %d",
                                               d->tree.procs[i].nspid);
        return 0;
}

void cop_dump_scan_done(struct cop_dump *d)
{
        for (uint32_t i = 0; d->scans && i < d->tree.count; i++) {
                cop_close(d->scans[i].pagemap_fd);
                free(d->scans[i].runs.list);
        }
        free(d->scans);
}
