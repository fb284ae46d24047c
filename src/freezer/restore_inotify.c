/* Watches of inotify descriptors, added when all else is open, so that what the thaw itself does to files is not reported.
 *
 * Events that were not read before the freeze cannot be read without taking them away, nor be put back: the program is told
 * instead, in the kernel's own way, that events were lost.  An overflow comes when a queue is full, so one is filled with
 * events of a file of our own, which are read off again up to the overflow at its end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore.h"

#define QUEUE_MAX (1U << 20) /* events: more than any sysctl in use */

static int add_watches(struct cop_restore *r, const struct img_file *f, int fd, struct cop_error *err)
{
        for (uint32_t i = 0; i < f->watches; i++) {
                /* The kernel lists the newest first, numbers go up: begin with the oldest. */
                const struct img_watch *w =
                        IMG_RECORD(r->image, IMG_WATCHES, img_watch, f->first_watch + f->watches - 1 - i);
                const char *path = cop_restore_string(r, &w->path);
                char open_file[32];
                uint32_t mask = w->events | IN_DONT_FOLLOW; /* of a link it is the link's own path */
                if (w->file != IMG_NONE) {
                        snprintf(open_file, sizeof(open_file), "/proc/self/fd/%d", r->objects[w->file]);
                        path = open_file;
                        mask = w->events;
                }
                for (;;) {
                        int wd = inotify_add_watch(fd, path, mask);
                        if (wd < 0)
                                return cop_error_errno(err, errno, "watching %s", path);
                        if (wd == w->fd)
                                break;
                        inotify_rm_watch(fd, wd);
                        if (wd > w->fd)
                                return cop_error_set(err, EEXIST, COP_ERR_start_failed,
                                                     "the watch number %d of %s is taken", w->fd, path);
                }
        }
        return 0;
}

/* Reads off all events, or all but the last. */
static int drain(int fd, bool leave_last)
{
        int queued = 0;

        if (ioctl(fd, FIONREAD, &queued) < 0)
                return -errno;
        size_t size = (size_t)queued - (leave_last ? sizeof(struct inotify_event) : 0);
        if (queued == 0 || size == 0)
                return 0;
        _cleanup_free_ char *events = malloc(size);
        if (!events)
                return -ENOMEM;
        return read(fd, events, size) == (ssize_t)size ? 0 : -EIO;
}

/* Two kinds of event by turns: of equal ones that follow each other only one is kept. */
static int fill(int fd, int file)
{
        char byte = 0;
        int before = -1, queued = 0;

        for (unsigned n = 0; n < QUEUE_MAX && queued != before; n += 256) {
                before = queued;
                for (unsigned k = 0; k < 256; k += 2)
                        if (pwrite(file, &byte, 1, 0) != 1 || pread(file, &byte, 1, 0) != 1)
                                return -EIO;
                if (ioctl(fd, FIONREAD, &queued) < 0)
                        return -errno;
        }
        return queued == before && queued > 0 ? 0 : -EOVERFLOW;
}

static int overflow(int fd)
{
        char path[32];
        _cleanup_close_ int memory = memfd_create("inotify-overflow", MFD_CLOEXEC);

        snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
        /* The description that memfd_create gives reports nothing. */
        _cleanup_close_ int file = memory < 0 ? -EBADF : open(path, O_RDWR | O_CLOEXEC);
        int wd = file < 0 ? -1 : inotify_add_watch(fd, path, IN_MODIFY | IN_ACCESS);
        if (wd < 0)
                return -errno;
        int ret = fill(fd, file);
        if (inotify_rm_watch(fd, wd) < 0 && ret == 0) /* the queue is full: its IN_IGNORED is dropped */
                ret = -errno;
        return ret < 0 ? ret : drain(fd, true);
}

int cop_restore_inotify(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int ret = add_watches(r, f, r->objects[index], err);

        if (ret < 0)
                return ret;
        /* Removing watches to reach a number has left IN_IGNORED events behind. */
        ret = drain(r->objects[index], false);
        if (ret == 0 && f->arg[0])
                ret = overflow(r->objects[index]);
        return ret < 0 ? cop_error_errno(err, -ret, "making an inotify descriptor") : 0;
}
