/* Files that are only mapped, opened beside the rest.
 *
 * A process with pandas maps some 150 libraries, and opening them through an overlay costs as much as everything else that is made
 * before the tree can be forked.  None of it depends on them, so a child that shares memory and descriptors opens them meanwhile.  It makes
 * raw system calls only, as libc's data are in use.  It begins with the first of them, and the first process, when it has done all else,
 * with the last, until they meet.  What neither could open is left to the first process, whose error says why.
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

enum share { NOT_HERE, LEFT, TAKEN };

struct cop_beside {
        struct cop_restore *r; /* borrowed */
        char *stack;           /* owned */
        pid_t pid;
        unsigned char files[]; /* enum share of each; who changes one from LEFT to TAKEN opens it */
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
                b->files[i] = only_mapped(b->r, i) ? LEFT : NOT_HERE;
        for (uint32_t i = 0; i < im->count[IMG_FDS]; i++)
                b->files[IMG_RECORD(im, IMG_FDS, img_fd, i)->file] = NOT_HERE;
        for (uint32_t i = 0; i < im->count[IMG_PACKETS]; i++) { /* in flight */
                const struct img_ref *ref = &IMG_RECORD(im, IMG_PACKETS, img_packet, i)->files;
                const uint32_t *files = ref->length ? cop_image_at(im, ref) : NULL;
                for (size_t k = 0; k < ref->length / sizeof(*files); k++)
                        b->files[files[k]] = NOT_HERE;
        }
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++)
                n += b->files[i] == LEFT;
        return n;
}

static void open_one(struct cop_beside *b, uint32_t i)
{
        const struct img_file *f = RESTORE_FILE(b->r, i);
        unsigned char left = LEFT;

        if (!__atomic_compare_exchange_n(&b->files[i], &left, TAKEN, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                return;
        long flags = ((long)f->flags & COP_FLAGS_OPEN) | O_CLOEXEC | O_NOCTTY;
        long fd = cop_raw_syscall4(SYS_openat, AT_FDCWD, (long)cop_restore_string(b->r, &f->path), flags, 0);
        long high = fd < 0 ? fd : cop_raw_syscall4(SYS_fcntl, fd, F_DUPFD_CLOEXEC, b->r->base_fd, 0);
        if (fd >= 0)
                (void)cop_raw_syscall4(SYS_close, fd, 0, 0, 0);
        if (high >= 0)
                b->r->objects[i] = (int)high;
}

static int open_all(void *pointer)
{
        struct cop_beside *b = pointer;

        for (uint32_t i = 0; i < b->r->image->count[IMG_FILES]; i++)
                open_one(b, i);
        return 0;
}

void cop_restore_open_beside(struct cop_restore *r)
{
        struct cop_beside *b = calloc(1, sizeof(*b) + r->image->count[IMG_FILES] * sizeof(b->files[0]));
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
        return r->beside && r->beside->files[index] != NOT_HERE;
}

void cop_restore_beside_done(struct cop_restore *r)
{
        struct cop_beside *b = TAKE_PTR(r->beside);

        if (!b)
                return;
        for (uint32_t i = r->image->count[IMG_FILES]; i > 0; i--)
                open_one(b, i - 1);
        cop_child_reap(b->pid);
        free(b->stack);
        free(b);
}
