/* Open file descriptions, rebuilt in the first process, and each process's descriptors.
 *
 * Descriptions of one object (link) are opened anew through /proc/self/fd from the first.  Late ones depend on the process
 * that holds them or on others being there: pidfds, files of procfs, /dev/tty, epoll registrations, locks.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "freezer/pty.h"
#include "freezer/restore.h"
#include "freezer/sockets.h"
#include "freezer/tracee.h"

#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, uint64_t)
#endif

int cop_restore_move_high(const struct cop_restore *r, int fd)
{
        int high = fcntl(fd, F_DUPFD_CLOEXEC, r->base_fd);

        if (high < 0)
                return -errno;
        close(fd);
        return high;
}

/* A unix socket's file, opened with O_PATH: it is there when the socket is. */
static bool is_socket_file(const struct img_file *f)
{
        return f->kind == IMG_FILE_DIRECTORY && S_ISSOCK(f->arg[1]);
}

/* Not to be opened before the tree is there, or ever. */
static bool late(const struct img_file *f)
{
        return f->kind == IMG_FILE_KEPT || (f->kind == IMG_FILE_PIDFD && f->arg[0]) || f->kind == IMG_FILE_PROC ||
               f->kind == IMG_FILE_SYSV ||
               (f->kind == IMG_FILE_DEVICE && major((dev_t)f->arg[0]) == 5 && minor((dev_t)f->arg[0]) == 0);
}

int cop_restore_reopen(int fd, int flags)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, (flags & COP_FLAGS_OPEN & ~(O_NOFOLLOW | O_DIRECTORY)) | O_CLOEXEC | O_NOCTTY);
        return again < 0 ? -errno : again;
}

int cop_restore_sibling(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        for (uint32_t i = 0; f->link && i < index; i++)
                if (RESTORE_FILE(r, i)->link == f->link && r->objects[i] >= 0)
                        return r->objects[i];
        return -1;
}

int cop_restore_file_pages(struct cop_restore *r, const struct img_file *f, int fd)
{
        for (uint32_t i = 0; i < f->extents; i++) {
                const struct img_extent *e = IMG_RECORD(r->image, IMG_EXTENTS, img_extent, f->first_extent + i);
                off_t from = (off_t)e->offset;
                size_t left = (size_t)e->pages * IMG_PAGE;
                if (e->address + left > f->arg[0])
                        left = f->arg[0] > e->address ? (size_t)(f->arg[0] - e->address) : 0;
                if (lseek(fd, (off_t)e->address, SEEK_SET) < 0)
                        return -errno;
                while (left > 0) {
                        ssize_t n = sendfile(fd, r->sources[e->source], &from, left);
                        if (n <= 0)
                                return n < 0 ? -errno : -EIO;
                        left -= (size_t)n;
                }
        }
        return 0;
}

static int open_memfd(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int other = cop_restore_sibling(r, index);
        bool shmem = f->kind == IMG_FILE_SHMEM;

        if (other >= 0)
                return cop_restore_reopen(other, (int)f->flags);
        _cleanup_close_ int fd =
                (int)syscall(SYS_memfd_create, cop_restore_string(r, &f->path), MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ftruncate(fd, (off_t)f->arg[0]) < 0)
                return -errno;
        int ret = cop_restore_file_pages(r, f, fd);
        if (ret < 0)
                return ret;
        ret = shmem ? 0 : cop_restore_attributes(fd, "", f, (mode_t)f->arg[2]);
        if (ret < 0)
                return ret;
        if (!shmem && f->arg[1] && !cop_restore_seals_late(f) && fcntl(fd, F_ADD_SEALS, (int)f->arg[1]) < 0)
                return -errno;
        if ((f->flags & O_ACCMODE) != O_RDWR)
                return cop_restore_reopen(fd, (int)f->flags);
        lseek(fd, 0, SEEK_SET);
        return TAKE_FD(fd);
}

static bool is_removed(const struct img_file *f)
{
        return (f->kind == IMG_FILE_REGULAR || f->kind == IMG_FILE_DIRECTORY) && f->arg[2] == 0;
}

static int open_path(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        const char *path = cop_restore_string(r, &f->path);
        char entries[1024] __attribute__((aligned(8)));

        /* A file that was opened with O_TMPFILE has O_DIRECTORY in its flags for ever. */
        int flags = (int)f->flags & COP_FLAGS_OPEN & (f->kind == IMG_FILE_REGULAR ? ~O_DIRECTORY : ~0);
        int fd = is_removed(f) ? cop_restore_removed(r, index, err) : open(path, flags | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return is_removed(f) ? fd : cop_error_errno(err, errno, "opening %s", path);
        if (is_removed(f) && f->kind == IMG_FILE_DIRECTORY)
                return fd;
        /* ext4 takes the first position at which a folder is read for the one that lseek(0) goes back to. */
        if (f->position > 0 && !(f->flags & O_PATH))
                (void)syscall(SYS_getdents64, fd, entries, sizeof(entries));
        if (f->kind != IMG_FILE_DEVICE && f->position > 0 && !(f->flags & O_PATH) &&
            lseek(fd, (off_t)f->position, SEEK_SET) < 0) {
                int saved = errno;
                close(fd);
                return cop_error_errno(err, saved, "seeking in %s", path);
        }
        return fd;
}

/* ---- pipes ---- */

static int fill_pipe(struct cop_restore *r, const struct img_file *f, int fd)
{
        if (fcntl(fd, F_GETPIPE_SZ) != (int)f->arg[0])
                (void)fcntl(fd, F_SETPIPE_SZ, (int)f->arg[0]); /* over the limit of an owner without rights: smaller */
        for (uint32_t i = 0; i < f->packets; i++) {
                const struct img_packet *p = IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i);
                if (write(fd, cop_image_at(r->image, &p->data), p->data.length) != (ssize_t)p->data.length)
                        return -EIO;
        }
        return 0;
}

static int open_fifo(const struct cop_restore *r, const struct img_file *f)
{
        int fd = open(cop_restore_string(r, &f->path), O_RDWR | O_NONBLOCK | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

/* The first description of a pipe's end that is not there yet, or -1. */
static int find_end(const struct cop_restore *r, uint32_t link, int access)
{
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind == IMG_FILE_PIPE && f->link == link && r->objects[i] < 0 &&
                    ((int)f->flags & O_ACCMODE) == access)
                        return (int)i;
        }
        return -1;
}

static int open_pipe(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int other = cop_restore_sibling(r, index), pair[2], ret;

        if (other >= 0)
                return cop_restore_reopen(other, (int)f->flags);
        if (f->kind == IMG_FILE_FIFO) {
                _cleanup_close_ int both = f->arg[2] == 0 ? cop_restore_without_name(r, f) : open_fifo(r, f);
                if (both < 0)
                        return both;
                ret = fill_pipe(r, f, both);
                if (ret == 0)
                        ret = cop_restore_reopen(both, (int)f->flags | O_NONBLOCK);
                if (ret >= 0)
                        (void)fcntl(ret, F_SETFL, (int)f->flags & COP_FLAGS_SET);
                return ret;
        }
        /* Packet mode can only be had at birth: no F_SETFL, no reopening. */
        int writer = find_end(r, f->link, O_WRONLY);
        bool packets = f->packets > 1 || (writer >= 0 && RESTORE_FILE(r, writer)->flags & O_DIRECT);
        if (pipe2(pair, O_CLOEXEC | O_NONBLOCK | (packets ? O_DIRECT : 0)) < 0)
                return -errno;
        _cleanup_close_ int out = pair[0], in = pair[1];
        ret = fill_pipe(r, f, in);
        if (ret < 0)
                return ret;
        if ((f->flags & O_ACCMODE) == O_RDWR)
                return cop_restore_reopen(out, (int)f->flags);
        if (writer >= 0 && (uint32_t)writer != index) { /* the other description, while its end is at hand */
                if (!packets && fcntl(in, F_SETFL, (int)RESTORE_FILE(r, writer)->flags & COP_FLAGS_SET) < 0)
                        return -errno;
                if (packets && !(RESTORE_FILE(r, writer)->flags & O_NONBLOCK) && ioctl(in, FIONBIO, &(int){0}) < 0)
                        return -errno;
                ret = cop_restore_move_high(r, in);
                in = -EBADF;
                if (ret < 0)
                        return ret;
                r->objects[writer] = ret;
        }
        bool writes = (f->flags & O_ACCMODE) == O_WRONLY;
        int fd = writes ? TAKE_FD(in) : TAKE_FD(out);
        if (writes && packets)
                return f->flags & O_NONBLOCK || ioctl(fd, FIONBIO, &(int){0}) == 0 ? fd : -errno;
        if (fcntl(fd, F_SETFL, (int)f->flags & COP_FLAGS_SET) < 0)
                return -errno;
        return fd;
}

/* ---- anonymous inodes ---- */

static int open_eventfd(const struct img_file *f)
{
        int fd = eventfd(0, EFD_CLOEXEC | ((int)f->flags & O_NONBLOCK ? EFD_NONBLOCK : 0) |
                                    (f->arg[1] ? EFD_SEMAPHORE : 0));
        uint64_t count = f->arg[0];

        if (fd >= 0 && count > 0 && write(fd, &count, sizeof(count)) != sizeof(count))
                return -EIO;
        return fd < 0 ? -errno : fd;
}

static int open_timerfd(const struct img_file *f)
{
        int fd = timerfd_create((int)f->arg[0], TFD_CLOEXEC | ((int)f->flags & O_NONBLOCK ? TFD_NONBLOCK : 0));
        bool absolute = f->arg[2] & TFD_TIMER_ABSTIME && f->arg[3];
        uint64_t value = absolute ? f->arg[5] : f->arg[3];
        struct itimerspec its = {
                .it_value = {.tv_sec = (time_t)(value / 1000000000), .tv_nsec = (long)(value % 1000000000)},
                .it_interval = {.tv_sec = (time_t)(f->arg[4] / 1000000000), .tv_nsec = (long)(f->arg[4] % 1000000000)},
        };
        uint64_t ticks = f->arg[1];

        if (fd < 0)
                return -errno;
        if (timerfd_settime(fd, absolute ? (int)f->arg[2] : 0, &its, NULL) < 0)
                return -errno;
        if (ticks > 0 && ioctl(fd, TFD_IOC_SET_TICKS, &ticks) < 0)
                return -errno;
        return fd;
}

/* ---- terminals ---- */

static int set_tty(struct cop_restore *r, const struct img_file *f, int fd)
{
        const char *state = cop_image_at(r->image, &f->data);

        if (f->data.length < 64 + sizeof(struct winsize))
                return -EBADMSG;
        if (ioctl(fd, 0x402c542b /* TCSETS2 */, state) < 0 || ioctl(fd, TIOCSWINSZ, state + 64) < 0)
                return -errno;
        return 0;
}

/* Only what was changed: the kernel may have given it a group of which the tree's user namespace knows nothing. */
static int set_pty_node(const struct img_file *f, int master)
{
        uid_t uid = (uid_t)f->arg[IMG_PTY_UID];
        gid_t gid = (gid_t)f->arg[IMG_PTY_GID];
        char path[32];
        struct stat st;
        _cleanup_close_ int fd = f->arg[IMG_PTY_MODE] ? ioctl(master, TIOCGPTPEER, O_PATH | O_CLOEXEC) : -EBADF;

        if (fd < 0 || fstat(fd, &st) < 0)
                return 0;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        uid = uid == st.st_uid ? (uid_t)-1 : uid;
        gid = gid == st.st_gid ? (gid_t)-1 : gid;
        if ((uid != (uid_t)-1 || gid != (gid_t)-1) && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
                return -errno;
        return st.st_mode == f->arg[IMG_PTY_MODE] || chmod(path, (mode_t)f->arg[IMG_PTY_MODE] & 07777) == 0 ? 0
                                                                                                            : -errno;
}

/* Masters get the lowest free number: take numbers until the right one comes, then give the others back. */
static int open_master(struct cop_restore *r, const struct img_file *f)
{
        int spare[256], n = 0, found = -EAGAIN;

        while (found == -EAGAIN && n < 256) {
                unsigned index = 0;
                int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
                if (fd < 0)
                        fd = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
                if (fd < 0 || ioctl(fd, TIOCGPTN, &index) < 0)
                        found = -errno;
                else if (index == f->arg[0])
                        found = fd;
                else
                        spare[n++] = fd;
                if (fd >= 0 && index > f->arg[0])
                        found = -EEXIST;
        }
        while (n > 0)
                close(spare[--n]);
        if (found < 0)
                return found;
        int locked = (int)f->arg[1], packet = (int)f->arg[2];
        if (ioctl(found, TIOCSPTLCK, &locked) < 0 || (packet && ioctl(found, TIOCPKT, &packet) < 0))
                return -errno;
        (void)fcntl(found, F_SETFL, (int)f->flags & COP_FLAGS_SET);
        if (f->arg[3]) /* its slave was opened and closed again */
                cop_close(ioctl(found, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
        int ret = set_tty(r, f, found);
        if (ret == 0)
                ret = set_pty_node(f, found);
        return ret < 0 ? ret : found;
}

/* A terminal whose master is closed. */
static int open_hung(const struct img_file *f)
{
        int locked = 0;
        _cleanup_close_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

        if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) < 0)
                return -errno;
        int fd = ioctl(master, TIOCGPTPEER, ((int)f->flags & (O_ACCMODE | O_NONBLOCK)) | O_NOCTTY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int open_slave(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        if (f->arg[1])
                return open_hung(f);

        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *m = RESTORE_FILE(r, i);
                if (m->kind != IMG_FILE_PTMX || m->arg[0] != f->arg[0] || r->objects[i] < 0)
                        continue;
                int fd = ioctl(r->objects[i], TIOCGPTPEER,
                               ((int)f->flags & (O_ACCMODE | O_NONBLOCK)) | O_NOCTTY | O_CLOEXEC);
                if (fd < 0)
                        return -errno;
                int ret = set_tty(r, f, fd);
                return ret < 0 ? ret : fd;
        }
        return open_hung(f); /* its master is outside the tree and was not named external: closed as by the peer */
}

/* ---- all of them ---- */

static int restore_object(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint64_t mask = f->arg[0];

        switch (f->kind) {
        case IMG_FILE_REGULAR:
        case IMG_FILE_DIRECTORY:
        case IMG_FILE_DEVICE:
                return open_path(r, index, err);
        case IMG_FILE_PIPE:
        case IMG_FILE_FIFO:
                return open_pipe(r, index);
        case IMG_FILE_EVENTFD:
                return open_eventfd(f);
        case IMG_FILE_EPOLL: {
                int fd = epoll_create1(EPOLL_CLOEXEC);
                return fd < 0 ? -errno : fd;
        }
        case IMG_FILE_TIMERFD:
                return open_timerfd(f);
        case IMG_FILE_SIGNALFD: {
                int fd = (int)syscall(SYS_signalfd4, -1, &mask, 8,
                                      SFD_CLOEXEC | ((int)f->flags & O_NONBLOCK ? SFD_NONBLOCK : 0));
                return fd < 0 ? -errno : fd;
        }
        case IMG_FILE_INOTIFY: {
                int fd = inotify_init1(IN_CLOEXEC | ((int)f->flags & O_NONBLOCK ? IN_NONBLOCK : 0));
                return fd < 0 ? -errno : fd;
        }
        case IMG_FILE_MEMFD:
        case IMG_FILE_SHMEM: {
                int fd = open_memfd(r, index);
                if (fd >= 0 && f->position)
                        lseek(fd, (off_t)f->position, SEEK_SET);
                return fd;
        }
        case IMG_FILE_PTMX:
                return open_master(r, f);
        case IMG_FILE_PTS:
                return open_slave(r, index);
        default:
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "the memory image is damaged: file %u has kind %u", index, f->kind);
        }
}

/* What fcntl can say of a description and its making has not.  A pipe has O_DIRECT from birth. */
static int match_flags(const struct img_file *f, int fd)
{
        int mask = COP_FLAGS_SET & (f->kind == IMG_FILE_PIPE || f->kind == IMG_FILE_FIFO ? ~O_DIRECT : ~0);
        int now = fcntl(fd, F_GETFL), want = (now & ~mask) | ((int)f->flags & mask);

        return now == want || f->flags & O_PATH || fcntl(fd, F_SETFL, want) == 0 ? 0 : -errno;
}

static int restore_one(struct cop_restore *r, uint32_t i, struct cop_error *err)
{
        struct cop_error e = COP_ERROR_NULL;
        int fd = restore_object(r, i, &e);

        if (fd >= 0 && fd < r->base_fd)
                fd = cop_restore_move_high(r, fd);
        int ret = fd < 0 ? fd : match_flags(RESTORE_FILE(r, i), fd);
        if (ret < 0) {
                cop_close(fd);
                if (e.errnum == 0)
                        cop_error_errno(&e, -ret, "rebuilding a descriptor of kind %u", RESTORE_FILE(r, i)->kind);
                if (e.code == COP_ERR_io_error)
                        e.code = COP_ERR_start_failed;
                if (err)
                        *err = e;
                return ret;
        }
        r->objects[i] = fd;
        return 0;
}

static int fill_terminal(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        if (f->kind != IMG_FILE_PTMX || f->packets != 2)
                return 0;
        const struct img_packet *p = IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet);
        _cleanup_close_ int slave = ioctl(r->objects[index], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (slave < 0)
                return cop_error_errno(err, errno, "opening a terminal");
        struct iovec typed = {(void *)(uintptr_t)cop_image_at(r->image, &p[0].data), p[0].data.length};
        struct iovec printed = {(void *)(uintptr_t)cop_image_at(r->image, &p[1].data), p[1].data.length};
        int ret = cop_pty_fill(r->objects[index], slave, cop_image_at(r->image, &f->data), &typed, &printed,
                               (enum cop_pty_stop)f->arg[4]);
        return ret < 0 ? cop_error_errno(err, -ret, "filling a terminal") : 0;
}

static int make_objects(struct cop_restore *r, struct cop_error *err)
{
        int ret = cop_restore_pidfds_of_ended(r, err);

        if (ret < 0)
                return ret;
        /* Slaves need their masters, so they come in a second round. */
        for (int round = 0; round < 2; round++)
                for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                        const struct img_file *f = RESTORE_FILE(r, i);
                        if (r->objects[i] >= 0 || cop_restore_is_beside(r, i) || late(f) || cop_is_socket(f) ||
                            is_socket_file(f) || (f->kind == IMG_FILE_PTS) != (round == 1))
                                continue;
                        ret = restore_one(r, i, err);
                        if (ret < 0)
                                return ret;
                }
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                ret = fill_terminal(r, i, err);
                if (ret < 0)
                        return ret;
        }
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) /* when all that are open have been opened */
                if (RESTORE_FILE(r, i)->kind == IMG_FILE_PTS && RESTORE_FILE(r, i)->arg[2] &&
                    ioctl(r->objects[i], TIOCEXCL) < 0)
                        return cop_error_errno(err, errno, "making a terminal exclusive");
        ret = cop_restore_sockets(r, err);
        for (uint32_t i = 0; ret == 0 && i < r->image->count[IMG_FILES]; i++)
                if (is_socket_file(RESTORE_FILE(r, i)))
                        ret = restore_one(r, i, err);
        for (uint32_t i = 0; ret == 0 && i < r->image->count[IMG_FILES]; i++)
                if (RESTORE_FILE(r, i)->kind == IMG_FILE_INOTIFY)
                        ret = cop_restore_inotify(r, i, err);
        return ret;
}

int cop_restore_objects(struct cop_restore *r, struct cop_error *err)
{
        int ret = cop_restore_kept(r, err);

        if (ret < 0)
                return ret;
        ret = make_objects(r, err);
        for (uint32_t i = r->image->count[IMG_FILES]; ret == 0 && i > 0; i--)
                if (cop_restore_beside_take(r, i - 1))
                        ret = restore_one(r, i - 1, err);
        if (ret == 0)
                cop_restore_beside_done(r);
        for (uint32_t i = 0; ret == 0 && i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (r->objects[i] < 0 && f->kind == IMG_FILE_REGULAR)
                        ret = restore_one(r, i, err);
        }
        return ret;
}

static int open_late(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int flags = ((int)f->flags & COP_FLAGS_OPEN) | O_CLOEXEC | O_NOCTTY;
        bool process = f->kind == IMG_FILE_PIDFD || f->kind == IMG_FILE_PROC;
        int fd = process ? cop_restore_process_file(r, f, flags) : open(cop_restore_string(r, &f->path), flags);

        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s",
                                       f->kind == IMG_FILE_PIDFD ? "a pidfd" : cop_restore_string(r, &f->path));
        if (fd < r->base_fd)
                fd = cop_restore_move_high(r, fd);
        r->objects[index] = fd;
        return fd;
}

/* The index of a descriptor of this process, or IMG_NONE.  They are in ascending order. */
static uint32_t find_fd(const struct cop_restore *r, int number)
{
        const struct img_proc *p = RESTORE_PROC(r, r->self);
        uint32_t low = p->first_fd, high = p->first_fd + p->fds;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                const struct img_fd *fd = IMG_RECORD(r->image, IMG_FDS, img_fd, middle);
                if (fd->fd == number)
                        return middle;
                if (fd->fd < number)
                        low = middle + 1;
                else
                        high = middle;
        }
        return IMG_NONE;
}

static bool names_file(const struct cop_restore *r, int number, uint32_t file)
{
        uint32_t index = find_fd(r, number);

        return index != IMG_NONE && IMG_RECORD(r->image, IMG_FDS, img_fd, index)->file == file;
}

/* Only a duplicate is left of what was registered, and its number is free or another's by now: it is lent to the duplicate. */
static int register_lent(const struct cop_restore *r, int epoll, const struct img_watch *w, struct epoll_event *event)
{
        int flags = fcntl(w->fd, F_GETFD), own = flags < 0 ? -1 : fcntl(w->fd, F_DUPFD_CLOEXEC, r->base_fd);

        if ((flags >= 0 && own < 0) || dup2(r->objects[w->file], w->fd) < 0)
                return -1;
        int ret = epoll_ctl(epoll, EPOLL_CTL_ADD, w->fd, event), saved = errno;
        if (own < 0)
                close(w->fd);
        else if (dup3(own, w->fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
                return -1;
        cop_close(own);
        errno = saved;
        return ret;
}

static int register_watches(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        for (uint32_t k = 0; k < f->watches; k++) {
                /* In the kernel's order, which is that of the red-black tree, not of the calls: any will do. */
                const struct img_watch *w = IMG_RECORD(r->image, IMG_WATCHES, img_watch, f->first_watch + k);
                struct epoll_event event = {.events = w->events, .data.u64 = w->data};
                if (w->process != r->self || w->file == IMG_NONE)
                        continue;
                int ret = names_file(r, w->fd, w->file) ? epoll_ctl(r->objects[index], EPOLL_CTL_ADD, w->fd, &event)
                                                        : register_lent(r, r->objects[index], w, &event);
                if (ret < 0)
                        return cop_error_errno(err, errno, "registering descriptor %d with an epoll", w->fd);
        }
        return 0;
}

/* The first descriptor of a description, of all processes: the kernel keeps one number, to tell it in the signal. */
static bool is_first_descriptor(const struct cop_restore *r, uint32_t index)
{
        uint32_t file = IMG_RECORD(r->image, IMG_FDS, img_fd, index)->file;

        for (uint32_t i = 0; i < index; i++)
                if (IMG_RECORD(r->image, IMG_FDS, img_fd, i)->file == file)
                        return false;
        return true;
}

/* Asked back once more, by one who does not wait for it. */
static int break_lease(const struct img_lock *l)
{
        int access = l->breaking == IMG_BREAK_TO_READ ? O_RDONLY : O_WRONLY;
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", l->fd);
        _cleanup_close_ int fd = open(path, access | O_NONBLOCK | O_CLOEXEC);
        return fd >= 0 || errno == EWOULDBLOCK ? 0 : -1;
}

/* Only the owner of a file gets a lease.  Nobody is told before set_owners says who: it has been told before the freeze. */
static int take_lease(const struct img_lock *l)
{
        struct stat st;

        if (fstat(l->fd, &st) < 0)
                return -1;
        syscall(SYS_setfsuid, st.st_uid);
        int ret = fcntl(l->fd, F_SETLEASE, l->write ? F_WRLCK : F_RDLCK), saved = errno;
        syscall(SYS_setfsuid, geteuid());
        prctl(PR_SET_DUMPABLE, 1); /* a change of user has cleared it */
        errno = saved;
        if (ret == 0)
                ret = fcntl(l->fd, F_SETOWN, 0);
        return ret == 0 && l->breaking ? break_lease(l) : ret;
}

/* POSIX locks are taken at the end of the table (restore_mem.c): the close of any descriptor of the file drops them. */
static int take_lock(const struct img_lock *l)
{
        struct flock fl = {
                .l_type = l->write ? F_WRLCK : F_RDLCK,
                .l_whence = SEEK_SET,
                .l_start = (off_t)l->start,
                .l_len = l->end == UINT64_MAX ? 0 : (off_t)(l->end - l->start + 1),
        };

        if (l->kind == IMG_LOCK_FLOCK)
                return flock(l->fd, (l->write ? LOCK_EX : LOCK_SH) | LOCK_NB);
        if (l->kind == IMG_LOCK_LEASE)
                return take_lease(l);
        return fcntl(l->fd, F_OFD_SETLK, &fl);
}

static int open_terminal(struct cop_restore *r, const struct img_proc *p)
{
        if (RESTORE_FILE(r, p->tty)->kind == IMG_FILE_EXTERNAL)
                return fcntl(r->objects[p->tty], F_DUPFD_CLOEXEC, r->base_fd);
        return ioctl(r->objects[p->tty], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

int cop_restore_terminal(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        if (p->tty == IMG_NONE)
                return 0;
        _cleanup_close_ int fd = open_terminal(r, p);
        if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
                return cop_error_errno(err, errno, "taking the controlling terminal of session %d", p->sid);
        return 0;
}

void cop_restore_foreground(struct cop_restore *r, const struct img_proc *p)
{
        pid_t group = (pid_t)p->tty_pgrp;
        _cleanup_close_ int fd = p->tty == IMG_NONE ? -EBADF : open_terminal(r, p);

        if (fd >= 0 && group > 0)
                (void)ioctl(fd, TIOCSPGRP, &group); /* fails for a group that is gone */
}

/* Who is to be told by a signal, in the name of whoever asked for it. */
static int set_owner(const struct cop_restore *r, const struct img_file *f, int fd)
{
        struct f_owner_ex owner = {.type = (enum __pid_type)f->owner[0], .pid = f->owner[1]};
        bool other = f->owner_uid || f->owner_euid;
        int ret = 0;

        if (owner.pid && !cop_restore_owner_late(r->image, f)) {
                if (other && setresuid(f->owner_uid, f->owner_euid, 0) < 0)
                        return -errno;
                if (fcntl(fd, F_SETOWN_EX, &owner) < 0 && errno != ESRCH) /* a group may be gone */
                        ret = -errno;
                if (other && (setresuid(0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
                        return -errno;
        }
        if (ret == 0 && f->signal && fcntl(fd, F_SETSIG, f->signal) < 0)
                ret = -errno;
        if (ret == 0 && f->flags & O_ASYNC && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) < 0)
                ret = -errno;
        return ret;
}

static int set_owners(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        for (uint32_t i = p->first_fd; i < p->first_fd + p->fds; i++) {
                const struct img_fd *fd = IMG_RECORD(r->image, IMG_FDS, img_fd, i);
                const struct img_file *f = RESTORE_FILE(r, fd->file);
                if ((f->owner[1] == 0 && f->signal == 0 && !(f->flags & O_ASYNC)) || f->kind == IMG_FILE_EXTERNAL ||
                    !is_first_descriptor(r, i))
                        continue;
                int ret = set_owner(r, f, fd->fd);
                if (ret < 0)
                        return cop_error_errno(err, -ret, "setting the owner of descriptor %d of process %d", fd->fd,
                                               p->pid);
        }
        return 0;
}

int cop_restore_descriptors(struct cop_restore *r, struct cop_error *err)
{
        const struct img_proc *p = RESTORE_PROC(r, r->self);
        int ret = 0;

        close_range(0, (unsigned)r->base_fd - 1, 0); /* inherited from a table in which another was opening something */
        cop_restore_foreground(r, p);
        for (uint32_t i = 0; ret >= 0 && i < p->fds; i++) {
                const struct img_fd *fd = IMG_RECORD(r->image, IMG_FDS, img_fd, p->first_fd + i);
                if (r->objects[fd->file] < 0)
                        ret = open_late(r, fd->file, err);
                if (ret >= 0 && dup3(r->objects[fd->file], fd->fd, fd->cloexec ? O_CLOEXEC : 0) < 0)
                        ret = cop_error_errno(err, errno, "placing descriptor %d of process %d", fd->fd, p->pid);
        }
        for (uint32_t i = 0; ret >= 0 && i < r->image->count[IMG_FILES]; i++)
                if (RESTORE_FILE(r, i)->kind == IMG_FILE_EPOLL)
                        ret = register_watches(r, i, err);
        for (uint32_t i = 0; ret >= 0 && i < p->locks; i++) {
                const struct img_lock *l = IMG_RECORD(r->image, IMG_LOCKS, img_lock, p->first_lock + i);
                uint32_t at = l->kind == IMG_LOCK_LEASE ? find_fd(r, l->fd) : 0;
                /* A lease is the description's, and is told of by each of its descriptors. */
                if (l->kind == IMG_LOCK_LEASE && (at == IMG_NONE || !is_first_descriptor(r, at)))
                        continue;
                if (l->kind != IMG_LOCK_POSIX && take_lock(l) < 0) /* another thaw of the same image may hold it */
                        ret = cop_error_errno(err, errno, "locking descriptor %d of process %d", l->fd, p->pid);
        }
        return ret < 0 ? ret : set_owners(r, p, err);
}
