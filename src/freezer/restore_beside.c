/* Files that are only mapped, opened beside the rest.
 *
 * A process with pandas maps some 150 libraries, and opening them through an overlay costs as much as everything else that is made
 * before the tree can be forked.  None of it depends on them, so a child that shares memory and descriptors opens them meanwhile.  It makes
 * raw system calls only, as libc's data are in use.  What it could not open is left to the first process, whose error says why.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/child_call.h"
#include "freezer/restore.h"

#define WORTH_IT 32 /* files */

struct cop_beside {
        struct cop_restore *r; /* borrowed */
        char *stack;           /* owned */
        pid_t pid;
        bool left[]; /* by file: to be opened by the child */
};

static bool only_mapped(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        return f->kind == IMG_FILE_REGULAR && f->arg[2] > 0 /* not removed */ && f->position == 0 &&
               !(f->flags & (O_PATH | O_DIRECTORY)) && r->objects[index] < 0;
}

static size_t choose(struct cop_beside *b)
{
        const struct cop_image *im = b->r->image;
        size_t n = 0;

        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++)
                b->left[i] = only_mapped(b->r, i);
        for (uint32_t i = 0; i < im->count[IMG_FDS]; i++)
                b->left[IMG_RECORD(im, IMG_FDS, img_fd, i)->file] = false;
        for (uint32_t i = 0; i < im->count[IMG_PACKETS]; i++) { /* in flight */
                const struct img_ref *ref = &IMG_RECORD(im, IMG_PACKETS, img_packet, i)->files;
                const uint32_t *files = ref->length ? cop_image_at(im, ref) : NULL;
                for (size_t k = 0; k < ref->length / sizeof(*files); k++)
                        b->left[files[k]] = false;
        }
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++)
                n += b->left[i];
        return n;
}

static int open_all(void *pointer)
{
        struct cop_beside *b = pointer;
        const struct cop_restore *r = b->r;

        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (!b->left[i])
                        continue;
                long flags = ((long)f->flags & COP_FLAGS_OPEN) | O_CLOEXEC | O_NOCTTY;
                long fd = cop_raw_syscall4(SYS_openat, AT_FDCWD, (long)cop_restore_string(r, &f->path), flags, 0);
                long high = fd < 0 ? fd : cop_raw_syscall4(SYS_fcntl, fd, F_DUPFD_CLOEXEC, r->base_fd, 0);
                if (fd >= 0)
                        (void)cop_raw_syscall4(SYS_close, fd, 0, 0, 0);
                if (high >= 0)
                        r->objects[i] = (int)high;
        }
        return 0;
}

void cop_restore_open_beside(struct cop_restore *r)
{
        struct cop_beside *b = calloc(1, sizeof(*b) + r->image->count[IMG_FILES] * sizeof(b->left[0]));
        char *stack = aligned_alloc(4096, COP_CHILD_STACK);
        cpu_set_t cpus;

        if (b && stack && cop_other_cpus(&cpus)) {
                *b = (struct cop_beside){.r = r, .stack = stack, .pid = -1};
                if (choose(b) >= WORTH_IT)
                        b->pid = cop_child_start(cop_restore_spare_pid(r, r->image->count[IMG_PROCS]), stack, open_all,
                                                 b);
                if (b->pid > 0) {
                        (void)sched_setaffinity(b->pid, sizeof(cpus), &cpus);
                        r->beside = b;
                        return;
                }
        }
        free(stack);
        free(b);
}

bool cop_restore_is_beside(const struct cop_restore *r, uint32_t index)
{
        return r->beside && r->beside->left[index];
}

void cop_restore_beside_done(struct cop_restore *r)
{
        struct cop_beside *b = TAKE_PTR(r->beside);

        if (!b)
                return;
        cop_child_reap(b->pid);
        free(b->stack);
        free(b);
}
