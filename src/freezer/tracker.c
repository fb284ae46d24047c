#include "freezer/tracker.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/parent.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* Memory that is new since the last stop is not tracked, and is copied during the next one: where it is more, it gets a short stop of its
 * own before, to be tracked. */
#define GROWN_PAGES 1024

struct cop_tracker *cop_tracker_new(void)
{
        return calloc(1, sizeof(struct cop_tracker));
}

/* What was found and copied for one image. */
static void forget_pages(struct cop_tracked *t)
{
        free(t->pre.list);
        free(t->looked.list);
        t->pre = (struct cop_precopy){0};
        t->looked = (struct cop_runs){0};
}

static void forget(struct cop_tracked *t)
{
        cop_close(t->uffd);
        cop_close(t->pagemap_fd);
        cop_close(t->mem_fd);
        free(t->areas);
        forget_pages(t);
        *t = (struct cop_tracked){.uffd = -EBADF, .pagemap_fd = -EBADF, .mem_fd = -EBADF};
}

void cop_tracker_free(struct cop_tracker *t)
{
        if (!t)
                return;
        cop_tracker_give_up(t);
        for (size_t i = 0; i < t->count; i++)
                forget(&t->list[i]);
        free(t->list);
        free(t->moves);
        cop_still_forget(&t->still);
        free(t);
}

struct cop_tracked *cop_tracker_find(const struct cop_tracker *t, pid_t pid)
{
        for (size_t i = 0; i < t->count; i++)
                if (t->list[i].pid == pid)
                        return &t->list[i];
        return NULL;
}

void cop_tracker_settle(struct cop_tracker *t, const char *id)
{
        cop_tracker_give_up(t);
        snprintf(t->image_id, sizeof(t->image_id), "%s", id ? id : "");
        for (size_t i = 0; i < t->count; i++)
                forget_pages(&t->list[i]);
        if (id)
                cop_still_settle(&t->still);
        else
                cop_still_forget(&t->still);
}

static bool wanted(const struct cop_vma *v)
{
        return !v->special && !(v->flags & (IMG_VMA_SHARED | IMG_VMA_DROPPABLE)) && !v->pfnmap && !v->hugetlb;
}

/* Only in a stop: an area that is another by now would be registered in part, and so be two, over which mremap fails. */
static bool enroll(struct cop_tracked *t, uint64_t start, uint64_t end)
{
        struct uffdio_register reg = {.range = {.start = start, .len = end - start}, .mode = UFFDIO_REGISTER_MODE_WP};

        return ioctl(t->uffd, UFFDIO_REGISTER, &reg) == 0;
}

/* The kernel looks for the memory first, and finds that nothing can be at 0 then. */
bool cop_tracked_alive(struct cop_tracked *t)
{
        struct uffdio_range nothing = {.start = 0, .len = IMG_PAGE};
        bool alive = ioctl(t->uffd, UFFDIO_UNREGISTER, &nothing) == 0 || errno == EINVAL;

        if (!alive)
                forget(t);
        return alive;
}

/* What precopying goes by, until the next stop. */
static void note_areas(struct cop_tracked *t, const struct cop_vmas *vs)
{
        struct cop_tracked_area *areas = malloc((vs->count + 1) * sizeof(*areas));

        free(t->areas);
        t->areas = areas;
        t->area_count = 0;
        t->size = 0;
        for (size_t i = 0; i < vs->count; i++) {
                const struct cop_vma *v = &vs->list[i];
                t->size += (v->end - v->start) / IMG_PAGE;
                if (areas && v->tracked)
                        areas[t->area_count++] = (struct cop_tracked_area){v->start, v->end, v->ino == 0};
        }
}

/* What is registered already costs little, so areas without another in between are registered with one call. */
void cop_tracker_cover(struct cop_tracker *tracker, pid_t pid, struct cop_vmas *vs)
{
        struct cop_tracked *t = cop_tracker_find(tracker, pid);
        size_t n;

        if (!t || t->uffd < 0)
                return;
        for (size_t i = 0; i < vs->count; i += n) {
                struct cop_vma *v = &vs->list[i];
                for (n = 0; i + n < vs->count && wanted(&v[n]);)
                        n++;
                bool all = n > 0 && enroll(t, v->start, v[n - 1].end);
                for (size_t k = 0; k < n; k++)
                        v[k].tracked = all || enroll(t, v[k].start, v[k].end);
                n = MAX_OF(n, 1u);
        }
        note_areas(t, vs);
}

static bool has_grown(const struct cop_tracked *t)
{
        _cleanup_free_ char *text = NULL;
        char path[32];

        snprintf(path, sizeof(path), "/proc/%d/statm", t->pid);
        return t->uffd >= 0 && cop_read_file(AT_FDCWD, path, 4096, &text, NULL, NULL) == 0 &&
               strtoull(text, NULL, 10) >= t->size + GROWN_PAGES;
}

bool cop_tracker_outdated(const struct cop_tracker *t)
{
        for (size_t i = 0; i < t->count; i++)
                if (has_grown(&t->list[i]))
                        return true;
        return t->count == 0;
}

int cop_tracker_begin(struct cop_tracker *t, struct cop_dump *d, struct cop_error *err)
{
        int r = cop_tracker_adopt(t, d, err);

        for (size_t i = 0; r == 0 && i < d->tree.count; i++) {
                const struct cop_proc *p = &d->tree.procs[i];
                struct cop_vmas vs = {0};
                if (p->zombie || !cop_tracker_find(t, p->pid))
                        continue;
                r = cop_procfs_vmas(p->dir_fd, false, &vs, err);
                if (r == 0)
                        cop_tracker_cover(t, p->pid, &vs);
                cop_vmas_done(&vs);
        }
        return r;
}

/* ---- making userfaultfds ---- */

static int open_uffd(struct cop_proc *p)
{
        uint64_t arg[6] = {O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY};
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED};
        uint64_t vdso = p->syscall_insn ? 0 : cop_procfs_vdso(p->dir_fd);
        struct cop_procfs_status status;
        int64_t fd, result;

        if (cop_procfs_status(p->dir_fd, &status, NULL) < 0)
                return -EPERM;
        p->no_traps = cop_procfs_ignores(&status, SIGTRAP) || cop_trap_pending(p->tasks[0].tid);
        if (vdso)
                p->syscall_insn = vdso + cop_vdso_syscall();
        if (!p->syscall_insn || cop_remote_syscall(p, &p->tasks[0], SYS_userfaultfd, arg, &fd, NULL) < 0 || fd < 0)
                return -EPERM;
        int mine = (int)syscall(SYS_pidfd_getfd, p->pidfd, (int)fd, 0);
        arg[0] = (uint64_t)fd;
        (void)cop_remote_syscall(p, &p->tasks[0], SYS_close, arg, &result, NULL);
        if (mine >= 0 && ioctl(mine, UFFDIO_API, &api) < 0)
                mine = cop_close(mine);
        return mine;
}

int cop_tracker_adopt(struct cop_tracker *t, struct cop_dump *d, struct cop_error *err)
{
        for (size_t i = 0; i < d->tree.count; i++) {
                struct cop_proc *p = &d->tree.procs[i];
                if (p->zombie || cop_tracker_find(t, p->pid))
                        continue;
                struct cop_tracked *bigger = reallocarray(t->list, t->count + 1, sizeof(*bigger));
                if (!bigger)
                        return cop_error_errno(err, ENOMEM, "tracking writes");
                t->list = bigger;
                struct cop_tracked *n = &t->list[t->count];
                *n = (struct cop_tracked){
                        .pid = p->pid, .nspid = p->nspid, .uffd = open_uffd(p), .pagemap_fd = -EBADF, .mem_fd = -EBADF};
                if (n->uffd < 0)
                        continue; /* the target may not (seccomp, sysctl): all its pages count as written */
                n->pagemap_fd = openat(p->dir_fd, "pagemap", O_RDONLY | O_CLOEXEC);
                n->mem_fd = openat(p->dir_fd, "mem", O_RDONLY | O_CLOEXEC);
                if (n->pagemap_fd < 0 || n->mem_fd < 0) {
                        forget(n);
                        continue;
                }
                t->count++;
        }
        return 0;
}

/* ---- what was written ---- */

static int scan(const struct cop_tracked *t, struct cop_runs *runs, unsigned flags)
{
        struct cop_scan scan = {.runs = runs, .pagemap_fd = t->pagemap_fd};
        int r = 0;

        for (size_t i = 0; i < t->area_count && r == 0; i++)
                r = cop_scan_area(&scan, t->areas[i].start, t->areas[i].end,
                                  flags | (t->areas[i].anonymous ? COP_SCAN_ANONYMOUS : 0U));
        return r == 0 ? cop_scan_end(&scan) : r;
}

int cop_tracker_protect(const struct cop_tracked *t, bool everything, struct cop_runs *runs)
{
        return scan(t, runs, COP_SCAN_PROTECT | (everything ? 0U : COP_SCAN_WRITTEN));
}

int cop_tracker_written(const struct cop_tracked *t, struct cop_runs *runs)
{
        return t->uffd < 0 || !t->areas ? -ENODATA : scan(t, runs, COP_SCAN_WRITTEN);
}
