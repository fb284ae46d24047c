#include "freezer/still.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/guest.h"
#include "freezer/parent.h"
#include "freezer/procfs.h"
#include "freezer/tracker.h"
#include "freezer/waits.h"

#define SETTLE_LOOKS 8
#define SETTLE_PAUSE 150 /* us */

static uint64_t page_of(uint64_t address)
{
        return address & ~(uint64_t)(IMG_PAGE - 1);
}

void cop_still_forget(struct cop_still *s)
{
        free(s->list);
        *s = (struct cop_still){0};
}

void cop_still_note(struct cop_still *s, const struct cop_tree *tree)
{
        size_t threads = 0;

        cop_still_forget(s);
        for (size_t i = 0; i < tree->count; i++)
                threads += tree->procs[i].task_count;
        s->list = calloc(threads + 1, sizeof(*s->list));
        if (!s->list)
                return;
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        const struct cop_task *t = &tree->procs[i].tasks[k];
                        if (!cop_was_interrupted(&t->regs)) /* it ran */
                                return;
                        s->list[s->count++] = (struct cop_still_thread){.pid = tree->procs[i].pid,
                                                                        .tid = t->tid,
                                                                        .call = cop_call_of(&t->regs),
                                                                        .rseq = t->rseq,
                                                                        .rseq_size = t->rseq_size};
                }
        s->noted = true;
}

/* The kernel may have restarted the call under another number. */
static bool sleeps(const struct cop_still_thread *t, struct cop_call *ret)
{
        char task[32];

        snprintf(task, sizeof(task), "/proc/%d", t->tid);
        return cop_call_slept_in(AT_FDCWD, task, ret) && cop_call_same_place(ret, &t->call) &&
               (ret->nr == t->call.nr || ret->nr == SYS_restart_syscall);
}

static bool settle(struct cop_still_thread *t)
{
        return sleeps(t, &t->call) && cop_procfs_slices(t->tid, &t->slices);
}

void cop_still_settle(struct cop_still *s)
{
        size_t done = 0;

        for (int look = 0; s->noted && look < SETTLE_LOOKS; look++) {
                if (look > 0)
                        usleep(SETTLE_PAUSE);
                while (done < s->count && settle(&s->list[done]))
                        done++;
                if (done == s->count)
                        break;
        }
        s->settled = s->noted && done == s->count;
}

static bool all_sleep_on(const struct cop_still *s)
{
        struct cop_call call;
        uint64_t slices;

        for (size_t i = 0; i < s->count; i++) {
                const struct cop_still_thread *t = &s->list[i];
                if (!sleeps(t, &call) || call.nr != t->call.nr || !cop_procfs_slices(t->tid, &slices) ||
                    slices != t->slices)
                        return false;
        }
        return true;
}

/* Makes what the kernel writes into areas for restartable sequences equal; false: there is none in that page, or a stack. */
static bool equal_sequences(const struct cop_still *s, pid_t pid, uint64_t page, char *here, const char *there)
{
        bool any = false;

        for (size_t i = 0; i < s->count; i++) {
                const struct cop_still_thread *t = &s->list[i];
                uint64_t start = MAX_OF(t->rseq, page), end = MIN_OF(t->rseq + t->rseq_size, page + IMG_PAGE);
                if (t->pid != pid)
                        continue;
                if (page_of(t->call.sp) == page)
                        return false;
                if (t->rseq == 0 || start >= end)
                        continue;
                memcpy(here + (start - page), there + (start - page), end - start);
                any = true;
        }
        return any;
}

static bool same_page(const struct cop_still *s, const struct cop_tracked *t, const struct cop_image *im, uint64_t page)
{
        char here[IMG_PAGE], there[IMG_PAGE];

        return pread(t->mem_fd, here, IMG_PAGE, (off_t)page) == IMG_PAGE &&
               cop_parent_page(im, cop_parent_proc(im, t->nspid), page, there) &&
               equal_sequences(s, t->pid, page, here, there) && memcmp(here, there, IMG_PAGE) == 0;
}

static bool is_tracked(const struct cop_tracked *t, uint64_t address)
{
        for (size_t i = 0; i < t->area_count; i++)
                if (t->areas[i].start <= address && address < t->areas[i].end)
                        return true;
        return false;
}

/* Has nothing been written in this process?  What lies between tracked areas is told with them, as written.  Each thread has one area for
 * sequences, so there are not many pages to look at. */
static bool same_memory(const struct cop_still *s, const struct cop_tracked *t, const struct cop_image *im)
{
        struct cop_runs runs = {0};
        bool same = cop_tracker_written(t, &runs) == 0;
        size_t pages = 0;

        for (size_t i = 0; i < runs.count && same; i++)
                for (uint64_t at = runs.list[i].start; at < runs.list[i].end && same; at += IMG_PAGE)
                        if (is_tracked(t, at))
                                same = ++pages <= 2 * s->count && same_page(s, t, im, at);
        free(runs.list);
        return same;
}

/* Threads of a process follow each other. */
static bool all_same_memory(const struct cop_tracker *t, const struct cop_image *im)
{
        const struct cop_tracked *p = NULL;

        for (size_t i = 0; i < t->still.count; i++) {
                const struct cop_still_thread *th = &t->still.list[i];
                bool next = !p || p->pid != th->pid;
                if (next)
                        p = cop_tracker_find(t, th->pid);
                /* A stack whose writes are not seen would tell nothing. */
                if (!p || !is_tracked(p, th->call.sp) || (next && !same_memory(&t->still, p, im)))
                        return false;
        }
        return true;
}

static bool is_last_image(const struct cop_tracker *t, int dir_fd)
{
        _cleanup_close_ int fd = openat(dir_fd, "meta.img", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        struct img_header header;

        return fd >= 0 && pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
               memcmp(header.magic, IMG_MAGIC, sizeof(header.magic)) == 0 &&
               strncmp(header.id, t->image_id, sizeof(header.id)) == 0;
}

/* The threads slept before and after, and so while memory was looked at. */
static bool prove(const struct cop_tracker *t, int image_dir_fd)
{
        struct cop_image *im = NULL;

        if (!t->still.settled || cop_guest_needed() || !all_sleep_on(&t->still) ||
            cop_image_open(image_dir_fd, false, &im, NULL) < 0)
                return false;
        bool same = all_same_memory(t, im);
        cop_image_free(im);
        return same && all_sleep_on(&t->still);
}

bool cop_tracker_still(struct cop_tracker *t, int image_dir_fd)
{
        if (t->precopying || !is_last_image(t, image_dir_fd))
                return false;
        if (t->still.proven)
                return all_sleep_on(&t->still);
        t->still.proven = prove(t, image_dir_fd);
        return t->still.proven;
}
