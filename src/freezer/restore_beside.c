/* Files that are only mapped, opened by the engine.
 *
 * A process with pandas maps some 150 libraries, and opening them through an overlay costs as much as everything else that is made
 * before the tree can be forked.  None of it depends on them, and the engine has nothing to do from the birth of its helper on: so it
 * opens them, through the root folder of the tree's mount namespace, where its caller has that.  It begins with the first of them, and the
 * first process, when it has done all else, with the last, until they meet; then what the engine has opened comes to the first process
 * (restore_pass.h).  What has not come is opened there once more, where the error says why.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/restore.h"
#include "freezer/restore_pass.h"

#define WORTH_IT 16 /* files */

enum share { NOT_HERE, LEFT, TAKEN }; /* who changes a file's from LEFT to TAKEN opens it */

static bool only_mapped(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        return f->kind == IMG_FILE_REGULAR && f->arg[2] > 0 /* not removed */ && f->position == 0 &&
               !(f->flags & (O_ACCMODE | O_PATH | O_DIRECTORY));
}

/* Only what is read: what opening does else is the tree's. */
void cop_restore_beside_choose(struct cop_restore *r)
{
        const struct cop_image *im = r->image;
        unsigned char *shares = cop_restore_shares(r);
        size_t n = 0;
        cpu_set_t cpus;

        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++)
                shares[i] = only_mapped(r, i) ? LEFT : NOT_HERE;
        for (uint32_t i = 0; i < im->count[IMG_FDS]; i++)
                shares[IMG_RECORD(im, IMG_FDS, img_fd, i)->file] = NOT_HERE;
        for (uint32_t i = 0; i < im->count[IMG_PACKETS]; i++) { /* in flight */
                const struct img_ref *ref = &IMG_RECORD(im, IMG_PACKETS, img_packet, i)->files;
                const uint32_t *files = ref->length ? cop_image_at(im, ref) : NULL;
                for (size_t k = 0; k < ref->length / sizeof(*files); k++)
                        shares[files[k]] = NOT_HERE;
        }
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++)
                n += shares[i] == LEFT;
        if (n >= WORTH_IT && r->request->root_fd >= 0 && cop_other_cpus(&cpus))
                return;
        memset(shares, NOT_HERE, im->count[IMG_FILES]);
        r->shared->opened = 1;
}

bool cop_restore_is_beside(const struct cop_restore *r, uint32_t index)
{
        return cop_restore_shares(r)[index] != NOT_HERE;
}

bool cop_restore_beside_take(struct cop_restore *r, uint32_t index)
{
        unsigned char left = LEFT;

        return __atomic_compare_exchange_n(&cop_restore_shares(r)[index], &left, TAKEN, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
}

/* ---- in the engine ---- */

/* The path is the tree's, and leads nowhere else; what lies there by now is not waited for. */
static int open_inside(const struct cop_restore *r, const struct img_file *f)
{
        struct open_how how = {.flags = (f->flags & (uint64_t)COP_FLAGS_OPEN) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY,
                               .resolve = RESOLVE_IN_ROOT};

        return (int)syscall(SYS_openat2, r->request->root_fd, cop_restore_string(r, &f->path), &how, sizeof(how));
}

static void send_opened(struct cop_restore *r, struct cop_passed *p)
{
        if (p->count > 0)
                (void)cop_pass_send(r->pass_fd[COP_PASS_ENGINE], p); /* the first process sees what is missing */
        cop_pass_close(p);
}

void cop_restore_beside_open(struct cop_restore *r)
{
        struct cop_passed p = {.count = 0};

        if (__atomic_load_n(&r->shared->opened, __ATOMIC_SEQ_CST))
                return;
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                int fd = cop_restore_beside_take(r, i) ? open_inside(r, RESTORE_FILE(r, i)) : -EBADF;
                if (fd < 0)
                        continue;
                p.number[p.count] = i;
                p.fd[p.count++] = fd;
                if (p.count == COP_RIGHTS_MAX)
                        send_opened(r, &p);
        }
        send_opened(r, &p);
        __atomic_store_n(&r->shared->opened, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &r->shared->opened, FUTEX_WAKE, INT32_MAX, NULL);
}

/* ---- in the first process ---- */

void cop_restore_beside_done(struct cop_restore *r)
{
        struct cop_passed p;
        usec_t look_until = cop_usec_add(cop_now(CLOCK_MONOTONIC), COP_LOOK);

        while (!__atomic_load_n(&r->shared->opened, __ATOMIC_SEQ_CST) &&
               !__atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST))
                cop_await_change(&r->shared->opened, 0, cop_now(CLOCK_MONOTONIC) < look_until);
        while (cop_pass_receive(r->pass_fd[COP_PASS_TREE], &p) == 0)
                for (size_t i = 0; i < p.count; i++)
                        r->objects[p.number[i]] = cop_restore_move_high(r, p.fd[i]);
}
