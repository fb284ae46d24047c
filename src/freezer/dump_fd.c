/* Descriptors.
 *
 * Theory of operation.  Two descriptors belong to one open file description when kcmp says so; only those of equal inode
 * and flags are compared (dump_known.c).  Each description becomes one img_file.  What it is comes from the link in /proc/PID/fd, fstat
 * and fdinfo; what only the description itself can tell (pipe contents, socket state) from a duplicate by pidfd_getfd.
 * The second pass resolves epoll registrations, which name descriptors.
 */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump_file.h"
#include "freezer/pty.h"
#include "freezer/sockets.h"

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif
#define MQUEUE_MAGIC 0x19800202 /* the file system of POSIX message queues */

static int collect_fd(int dir_fd, const struct cop_proc *p, int fd, struct cop_fd_info *fi, struct cop_error *err)
{
        char path[32];

        snprintf(path, sizeof(path), "fd/%d", fd);
        ssize_t n = readlinkat(dir_fd, path, fi->link, sizeof(fi->link) - 1);
        if (n < 0 || fstatat(dir_fd, path, &fi->st, 0) < 0)
                return cop_error_errno(err, errno, "reading descriptor %d of pid %d (%s)", fd, p->nspid, p->comm);
        fi->link[n] = '\0';
        snprintf(path, sizeof(path), "fdinfo/%d", fd);
        int r = cop_read_file(dir_fd, path, 16UL << 20, &fi->text, NULL, err);
        if (r < 0)
                return r;
        fi->flags = (uint32_t)cop_procfs_field_u64(fi->text, "flags", 8);
        fi->position = cop_procfs_field_u64(fi->text, "pos", 10);
        return 0;
}

int cop_dump_duplicate(struct cop_dump *d, struct cop_dump_file *known, struct cop_error *err)
{
        if (known->own_fd >= 0)
                return known->own_fd;
        if (known->pid == getpid())
                known->own_fd = fcntl(known->fd, F_DUPFD_CLOEXEC, 0);
        else
                known->own_fd = (int)syscall(SYS_pidfd_getfd, d->tree.procs[known->proc].pidfd, known->fd, 0);
        if (known->own_fd < 0)
                return cop_error_errno(err, errno, "duplicating descriptor %d of pid %d", known->fd,
                                       d->tree.procs[known->proc].nspid);
        return known->own_fd;
}

const char *cop_dump_external_name(const struct cop_dump *d, const struct stat *st)
{
        for (size_t i = 0; i < d->request->external_count; i++)
                if (d->request->externals[i].dev == st->st_dev && d->request->externals[i].ino == st->st_ino)
                        return d->request->externals[i].name;
        return NULL;
}

/* ---- pipes ---- */

static int dump_pipe_data(struct cop_dump *d, int fd, struct img_file *f, struct cop_error *err)
{
        char path[32];
        int queued = 0, pair[2];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        _cleanup_close_ int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (reader < 0 || ioctl(reader, FIONREAD, &queued) < 0)
                return cop_error_errno(err, errno, "opening a pipe");
        f->arg[0] = (uint64_t)fcntl(reader, F_GETPIPE_SZ);
        f->first_packet = cop_image_count(d->writer, IMG_PACKETS);
        if (queued <= 0)
                return 0;
        if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
                return cop_error_errno(err, errno, "copying a pipe");
        _cleanup_close_ int in = pair[1], out = pair[0];
        _cleanup_free_ char *data = malloc((size_t)queued);
        /* Twice as many slots: a packet or a small write takes a whole one. */
        if ((fcntl(in, F_SETPIPE_SZ, (int)f->arg[0] * 2) < 0 && fcntl(in, F_SETPIPE_SZ, (int)f->arg[0]) < 0) || !data)
                return cop_error_errno(err, errno, "copying a pipe");
        ssize_t n = tee(reader, in, (size_t)queued, SPLICE_F_NONBLOCK);
        if (n != queued)
                return cop_error_errno(err, n < 0 ? errno : EIO, "copying the contents of a pipe");
        /* One read gives all, but for a pipe in packet mode (O_DIRECT): there one packet. */
        for (ssize_t got; (got = read(out, data, (size_t)queued)) > 0; f->packets++) {
                struct img_packet packet = {.data = cop_image_put(d->writer, data, (size_t)got)};
                cop_image_add(d->writer, IMG_PACKETS, &packet);
        }
        return 0;
}

static int dump_pipe(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                     struct cop_error *err)
{
        bool first;

        f->kind = fi->link[0] == '/' ? IMG_FILE_FIFO : IMG_FILE_PIPE;
        if (f->kind == IMG_FILE_FIFO) {
                int r = cop_dump_settle_name(d, known, fi, err);
                if (r < 0)
                        return r;
                f->path = cop_image_puts(d->writer, fi->link);
                f->arg[1] = fi->st.st_mode;
                f->arg[2] = fi->st.st_nlink;
                cop_dump_attributes(d, f, &fi->st);
        }
        f->link = cop_dump_link(d, known->dev, known->ino, &first);
        if (!first || f->flags & O_PATH)
                return 0;
        int fd = cop_dump_duplicate(d, known, err);
        return fd < 0 ? fd : dump_pipe_data(d, fd, f, err);
}

/* ---- anonymous inodes ---- */

static int remember_target(struct cop_dump *d, uint32_t watch, struct cop_dump_target target)
{
        if (watch >= d->target_count) {
                size_t count = MAX_OF(64UL, 2UL * watch);
                struct cop_dump_target *bigger = reallocarray(d->targets, count, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                memset(bigger + d->target_count, 0, (count - d->target_count) * sizeof(*bigger));
                d->targets = bigger;
                d->target_count = count;
        }
        d->targets[watch] = target;
        return 0;
}

static int dump_epoll(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, const char *text,
                      struct cop_error *err)
{
        f->kind = IMG_FILE_EPOLL;
        f->first_watch = cop_image_count(d->writer, IMG_WATCHES);
        for (const char *line = strstr(text, "tfd:"); line; line = strstr(line + 4, "tfd:")) {
                struct img_watch watch = {.file = IMG_NONE, .process = known->proc};
                unsigned long long data, ino = 0;
                unsigned sdev = 0;
                if (sscanf(line, "tfd: %d events: %x data: %llx pos:%*d ino:%llx sdev:%x", &watch.fd, &watch.events,
                           &data, &ino, &sdev) < 3)
                        continue;
                watch.data = data;
                uint32_t index = cop_image_add(d->writer, IMG_WATCHES, &watch);
                if (index == IMG_NONE || remember_target(d, index, (struct cop_dump_target){ino, sdev}) < 0)
                        return cop_error_errno(err, ENOMEM, "collecting an epoll");
                f->watches++;
        }
        return 0;
}

/* What fdinfo has of a timerfd. */
struct timerfd_state {
        uint64_t clock, flags, ticks, value, interval; /* value and interval in ns */
};

static uint64_t fdinfo_ns(const char *text, const char *name)
{
        unsigned long long s, ns;
        const char *v = cop_procfs_field(text, name, NULL);

        return v && sscanf(v, "(%llu, %llu)", &s, &ns) == 2 ? s * 1000000000ULL + ns : 0;
}

static int read_timerfd(int fd, struct timerfd_state *ret, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        struct itimerspec its;
        char path[64];

        /* A periodic timer that fired counts its ticks, and is armed again, only when it is looked at. */
        if (timerfd_gettime(fd, &its) < 0)
                return cop_error_errno(err, errno, "reading a timerfd");
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
        int r = cop_read_file(AT_FDCWD, path, 4096, &text, NULL, err);
        if (r < 0)
                return r;
        *ret = (struct timerfd_state){
                .clock = cop_procfs_field_u64(text, "clockid", 10),
                .flags = cop_procfs_field_u64(text, "settime flags", 8),
                .ticks = cop_procfs_field_u64(text, "ticks", 10),
                .value = fdinfo_ns(text, "it_value"),
                .interval = fdinfo_ns(text, "it_interval"),
        };
        return 0;
}

/* The timer runs on while it is read: one that fires in between has no time left, as if it were disarmed. */
static int settle_timerfd(int fd, struct timerfd_state *ret, struct cop_error *err)
{
        int r = read_timerfd(fd, ret, err);

        for (int tries = 0; r == 0 && ret->value == 0 && tries < 3 && (ret->interval > 0 || ret->ticks == 0); tries++)
                r = read_timerfd(fd, ret, err);
        if (ret->interval > 0 && ret->ticks > 0 && ret->value == 0)
                ret->value = 1; /* it fires faster than it can be read */
        if (ret->interval == 0 && ret->ticks > 0)
                ret->value = 0;
        return r;
}

static int dump_timerfd(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_error *err)
{
        struct timerfd_state t = {0};
        struct timespec now;
        int fd = cop_dump_duplicate(d, known, err);
        int r = fd < 0 ? fd : settle_timerfd(fd, &t, err);

        if (r < 0)
                return r;
        f->kind = IMG_FILE_TIMERFD;
        f->arg[0] = t.clock;
        f->arg[1] = t.ticks;
        f->arg[2] = t.flags;
        f->arg[3] = t.value;
        f->arg[4] = t.interval;
        /* When it will fire, on the tree's clock: for absolute ones, which must never fire early. */
        clock_gettime(t.clock == CLOCK_REALTIME   ? CLOCK_REALTIME
                      : t.clock == CLOCK_BOOTTIME ? CLOCK_BOOTTIME
                                                  : CLOCK_MONOTONIC,
                      &now);
        f->arg[5] = (uint64_t)(now.tv_sec * 1000000000LL + now.tv_nsec) + t.value;
        if (t.clock == CLOCK_MONOTONIC || t.clock == CLOCK_BOOTTIME)
                f->arg[5] += (uint64_t)d->clock_offset[t.clock == CLOCK_BOOTTIME];
        return 0;
}

static int dump_inotify(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, const char *text,
                        struct cop_error *err)
{
        int fd = cop_dump_duplicate(d, known, err), unread = 0;

        if (fd < 0)
                return fd;
        f->kind = IMG_FILE_INOTIFY;
        f->arg[0] = ioctl(fd, FIONREAD, &unread) == 0 && unread > 0;
        f->first_watch = cop_image_count(d->writer, IMG_WATCHES);
        for (const char *line = strstr(text, "inotify wd:"); line; line = strstr(line + 4, "inotify wd:")) {
                struct img_watch watch = {.file = IMG_NONE};
                char path[COP_DUMP_LINK];
                unsigned long long ino = 0;
                unsigned sdev = 0;
                if (sscanf(line, "inotify wd:%x ino:%llx sdev:%x mask:%x", (unsigned *)&watch.fd, &ino, &sdev,
                           &watch.events) != 4)
                        continue;
                struct cop_dump_target target = {ino, sdev};
                if (cop_dump_watch_name(d, line, &target, path, sizeof(path)) == 0)
                        watch.path = cop_image_puts(d->writer, path);
                uint32_t index = cop_image_add(d->writer, IMG_WATCHES, &watch);
                if (index == IMG_NONE || remember_target(d, index, target) < 0)
                        return cop_error_errno(err, ENOMEM, "collecting an inotify descriptor");
                f->watches++;
        }
        return 0;
}

static int dump_anonymous(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f,
                          const struct cop_fd_info *fi, struct cop_error *err)
{
        const char *link = fi->link;

        if (strcmp(link, "anon_inode:[eventfd]") == 0) {
                f->kind = IMG_FILE_EVENTFD;
                f->arg[0] = cop_procfs_field_u64(fi->text, "eventfd-count", 16);
                f->arg[1] = cop_procfs_field_u64(fi->text, "eventfd-semaphore", 10);
                return 0;
        }
        if (strcmp(link, "anon_inode:[eventpoll]") == 0)
                return dump_epoll(d, known, f, fi->text, err);
        if (strcmp(link, "anon_inode:[timerfd]") == 0)
                return dump_timerfd(d, known, f, err);
        if (strcmp(link, "anon_inode:[signalfd]") == 0) {
                f->kind = IMG_FILE_SIGNALFD;
                f->arg[0] = cop_procfs_field_u64(fi->text, "sigmask", 16);
                return 0;
        }
        if (strcmp(link, "anon_inode:inotify") == 0)
                return dump_inotify(d, known, f, fi->text, err);
        if (strcmp(link, "anon_inode:[pidfd]") == 0 || strncmp(link, "pidfd:[", 7) == 0) {
                f->kind = IMG_FILE_PIDFD;
                return cop_dump_pidfd(d, known, f, (pid_t)cop_procfs_field_u64(fi->text, "Pid", 10), err);
        }
        const char *name = strchr(link, '[');
        int n = name ? (int)strcspn(name + 1, "]") : 0;
        return cop_not_freezable(d, known->proc, err, "holds an %.*s (fd %d)", name ? n : 60, name ? name + 1 : link,
                                 known->fd);
}

/* ---- terminals and other devices ---- */

/* Opened with O_PATH its other end takes it for closed still. */
static void dump_pty_node(const struct cop_dump *d, struct img_file *f, int master)
{
        struct stat st;
        _cleanup_close_ int fd = ioctl(master, TIOCGPTPEER, O_PATH | O_CLOEXEC);

        if (fd < 0 || fstat(fd, &st) < 0)
                return;
        f->arg[IMG_PTY_UID] = cop_dump_uid(d, st.st_uid);
        f->arg[IMG_PTY_GID] = cop_dump_gid(d, st.st_gid);
        f->arg[IMG_PTY_MODE] = st.st_mode;
}

static int dump_tty(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, const struct cop_fd_info *fi,
                    struct cop_error *err)
{
        struct {
                struct termios2_like {
                        unsigned char raw[64];
                } termios;
                struct winsize size;
        } state = {0};
        int fd = cop_dump_duplicate(d, known, err);
        unsigned index = 0;

        if (fd < 0)
                return fd;
        bool master = ioctl(fd, TIOCGPTN, &index) == 0;
        if (master) {
                int locked = 0, packet = 0;
                f->kind = IMG_FILE_PTMX;
                f->arg[0] = index;
                if (ioctl(fd, TIOCGPTLCK, &locked) == 0)
                        f->arg[1] = (uint64_t)locked;
                if (ioctl(fd, TIOCGPKT, &packet) == 0)
                        f->arg[2] = (uint64_t)packet;
                struct pollfd p = {.fd = fd};
                f->arg[3] = poll(&p, 1, 0) > 0 && p.revents & POLLHUP; /* its slave has been closed */
                dump_pty_node(d, f, fd);
        } else {
                int exclusive = 0;
                f->kind = IMG_FILE_PTS;
                f->arg[0] = minor(fi->st.st_rdev);
                if (ioctl(fd, TIOCGEXCL, &exclusive) == 0)
                        f->arg[2] = (uint64_t)exclusive;
        }
        f->path = cop_image_puts(d->writer, fi->link);
        if (!master && ioctl(fd, 0x802c542a, &state.termios) < 0 && errno == EIO) {
                f->arg[1] = 1; /* its master is closed */
                return 0;
        }
        if (ioctl(fd, 0x802c542a /* TCGETS2 */, &state.termios) < 0 || ioctl(fd, TIOCGWINSZ, &state.size) < 0)
                return cop_error_errno(err, errno, "reading a terminal's settings");
        f->data = cop_image_put(d->writer, &state, sizeof(state));
        return 0;
}

/* The tree's own descriptor of a slave: one that is exclusive (TIOCEXCL) cannot be opened again.  NULL: nobody of the tree has one. */
static struct cop_dump_file *find_slave(struct cop_dump *d, uint64_t index)
{
        for (size_t i = 0; i < d->file_count; i++) {
                const struct img_file *f = cop_image_record(d->writer, IMG_FILES, d->files[i].index);
                if (f && f->kind == IMG_FILE_PTS && f->arg[0] == index && f->arg[1] == 0 && !d->files[i].mapping)
                        return &d->files[i];
        }
        return NULL;
}

/* When all descriptors are known: what waits in ptys whose both ends are in the tree. */
static int dump_tty_queues(struct cop_dump *d, struct cop_dump_file *known, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf typed = COP_BUF(1UL << 20), printed = COP_BUF(1UL << 20);
        struct img_file *f = cop_image_record(d->writer, IMG_FILES, known->index);
        struct cop_dump_file *open_slave = find_slave(d, f->arg[0]);
        char state[COP_PTY_STATE];
        enum cop_pty_stop stop = COP_PTY_RUNS;

        if (known->own_fd < 0 || !open_slave)
                return 0;
        _cleanup_close_ int slave = ioctl(known->own_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (slave < 0 && errno == EBUSY)
                slave = fcntl(cop_dump_duplicate(d, open_slave, err), F_DUPFD_CLOEXEC, 0);
        if (slave < 0 || ioctl(slave, 0x802c542a /* TCGETS2 */, state) < 0)
                return cop_error_errno(err, errno, "opening a terminal");
        int r = cop_pty_drain(known->own_fd, slave, state, &typed, &printed, &stop);
        if (r == 0)
                r = cop_pty_fill(known->own_fd, slave, state, &(struct iovec){typed.data, typed.len},
                                 &(struct iovec){printed.data, printed.len}, stop);
        if (r < 0)
                return cop_error_errno(err, -r, "reading what waits in a terminal");
        f->arg[4] = stop;
        f->first_packet = cop_image_count(d->writer, IMG_PACKETS);
        f->packets = 2;
        cop_image_add(d->writer, IMG_PACKETS,
                      &(struct img_packet){.data = cop_image_put(d->writer, typed.data, typed.len)});
        cop_image_add(d->writer, IMG_PACKETS,
                      &(struct img_packet){.data = cop_image_put(d->writer, printed.data, printed.len)});
        return 0;
}

static int dump_device(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                       struct cop_error *err)
{
        unsigned maj = major(fi->st.st_rdev), min = minor(fi->st.st_rdev);

        if ((maj >= 136 && maj <= 143) || (maj == 5 && min == 2))
                return f->flags & O_PATH ? 0 : dump_tty(d, known, f, fi, err);
        const char *name = cop_dump_device_name(fi->st.st_rdev);
        if (!name)
                return cop_not_freezable(d, known->proc, err, "holds the device %.100s (fd %d)", fi->link, known->fd);
        f->kind = IMG_FILE_DEVICE;
        f->arg[0] = fi->st.st_rdev;
        f->path = cop_image_puts(d->writer, cop_dump_leads_to(d, fi->link, &fi->st) ? fi->link : name);
        return 0;
}

static int dump_by_kind(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                        struct cop_error *err)
{
        struct statfs fs;
        char path[64];

        if (S_ISSOCK(fi->st.st_mode) && strncmp(fi->link, "socket:[", 8) == 0)
                return cop_dump_socket(d, known, f, err);
        if (S_ISFIFO(fi->st.st_mode) && fi->link[0] != '/')
                return dump_pipe(d, known, f, fi, err);
        if (strncmp(fi->link, "anon_inode:", 11) == 0 || strncmp(fi->link, "pidfd:[", 7) == 0)
                return dump_anonymous(d, known, f, fi, err);
        if (strncmp(fi->link, "/memfd:", 7) == 0)
                return cop_dump_memfd(d, known, f, fi, err);
        if (fi->link[0] != '/')
                return cop_dump_namespace(d, f, fi->link, &fi->st)
                               ? 0
                               : cop_not_freezable(d, known->proc, err, "holds %.100s (fd %d)", fi->link, known->fd);
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", known->pid, known->fd);
        if (statfs(path, &fs) < 0)
                fs.f_type = 0;
        fi->fs_type = fs.f_type;
        if (fs.f_type == MQUEUE_MAGIC)
                return cop_not_freezable(d, known->proc, err, "holds the message queue %.100s (fd %d)", fi->link,
                                         known->fd);
        if (fs.f_type == PROC_SUPER_MAGIC) {
                cop_dump_cut_deleted(fi->link);
                return cop_dump_proc_file(d, known, f, fi->link, &fi->st, err);
        }
        if (S_ISREG(fi->st.st_mode))
                return cop_dump_regular(d, known, f, fi, err);
        if (S_ISFIFO(fi->st.st_mode))
                return dump_pipe(d, known, f, fi, err);
        if (S_ISDIR(fi->st.st_mode) || S_ISLNK(fi->st.st_mode) || S_ISSOCK(fi->st.st_mode)) {
                return cop_dump_folder(d, known, f, fi, err);
        }
        if (S_ISCHR(fi->st.st_mode))
                return dump_device(d, known, f, fi, err);
        return cop_not_freezable(d, known->proc, err, "holds %.100s (fd %d)", fi->link, known->fd);
}

/* A group whose leader has ended is known by its members. */
static pid_t group_inside(const struct cop_dump *d, pid_t pgid)
{
        pid_t inside = cop_pid_inside(d->tree.pidns_fd, pgid);

        for (uint32_t i = 0; inside == 0 && i < d->tree.count; i++)
                if (getpgid(d->tree.procs[i].pid) == pgid)
                        inside = ((const struct img_proc *)cop_image_record(d->writer, IMG_PROCS, i))->pgid;
        return inside;
}

/* Who is told by a signal that there is something to do: F_SETOWN, F_SETSIG. */
static int dump_owner(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, const char *text,
                      struct cop_error *err)
{
        struct f_owner_ex owner = {0};
        uint32_t uids[2];
        bool can = f->kind == IMG_FILE_PIPE || f->kind == IMG_FILE_FIFO || cop_is_socket(f) ||
                   f->kind == IMG_FILE_PTMX || f->kind == IMG_FILE_PTS || f->kind == IMG_FILE_INOTIFY ||
                   f->kind == IMG_FILE_DIRECTORY || (f->kind == IMG_FILE_REGULAR && cop_dump_has_lease(text));

        if (!can || f->flags & O_PATH)
                return 0;
        int fd = cop_dump_duplicate(d, known, err);
        if (fd < 0)
                return fd;
        f->signal = fcntl(fd, F_GETSIG);
        if (fcntl(fd, F_GETOWN_EX, &owner) < 0 || owner.pid == 0)
                return 0;
        if (f->kind ==
            IMG_FILE_DIRECTORY) /* nothing else gives a folder an owner, and nothing tells of what it asked for */
                return cop_not_freezable(d, known->proc, err, "has itself told of changes by fcntl F_NOTIFY (fd %d)",
                                         known->fd);
        f->owner[0] = (int32_t)owner.type;
        f->owner[1] =
                owner.type == F_OWNER_PGRP ? group_inside(d, owner.pid) : cop_pid_inside(d->tree.pidns_fd, owner.pid);
        if (fcntl(fd, F_GETOWNER_UIDS, uids) == 0) {
                f->owner_uid = cop_dump_uid(d, uids[0]);
                f->owner_euid = cop_dump_uid(d, uids[1]);
        }
        for (uint32_t i = 0; owner.type == F_OWNER_TID && i < d->tree.count; i++)
                if (d->tree.procs[i].pid == owner.pid)
                        return 0;
        /* Another thread is there when its process has made it, which needs the descriptor then. */
        const struct cop_proc *holder = &d->tree.procs[known->proc];
        for (size_t k = 0; owner.type == F_OWNER_TID && k < holder->task_count; k++)
                if (holder->tasks[k].tid == owner.pid)
                        return 0;
        return owner.type != F_OWNER_TID || f->owner[1] == 0
                       ? 0
                       : cop_not_freezable(d, known->proc, err, "has thread %d told of what comes to descriptor %d",
                                           f->owner[1], known->fd);
}

static struct cop_dump_file *find_same(struct cop_dump *d, pid_t pid, int fd, const struct cop_fd_info *fi)
{
        return cop_dump_known(d, &(struct cop_dump_file){.dev = fi->st.st_dev,
                                                         .ino = fi->st.st_ino,
                                                         .pid = pid,
                                                         .fd = fd,
                                                         .flags = fi->flags & ~(uint32_t)O_CLOEXEC});
}

static int dump_new_file(struct cop_dump *d, pid_t pid, uint32_t proc, int fd, struct cop_fd_info *fi,
                         struct cop_error *err)
{
        struct img_file f = {.flags = fi->flags & ~(uint32_t)O_CLOEXEC,
                             .position = fi->position,
                             .dev = fi->st.st_dev,
                             .ino = fi->st.st_ino};
        struct cop_dump_file known = {.dev = fi->st.st_dev,
                                      .ino = fi->st.st_ino,
                                      .pid = pid,
                                      .proc = proc,
                                      .fd = fd,
                                      .own_fd = -EBADF,
                                      .flags = f.flags};
        const char *name = cop_dump_external_name(d, &fi->st);
        int r = 0;

        if (name) {
                f.kind = IMG_FILE_EXTERNAL;
                f.arg[0] = fi->st.st_rdev;
                f.path = cop_image_puts(d->writer, name);
        } else
                r = dump_by_kind(d, &known, &f, fi, err);
        if (r == 0)
                r = dump_owner(d, &known, &f, fi->text, err);
        if (r == 0 && f.kind == 0)
                r = cop_not_freezable(d, proc, err, "holds %.100s (fd %d)", fi->link, fd);
        if (r < 0) {
                cop_close(known.own_fd);
                return r;
        }
        known.index = cop_image_add(d->writer, IMG_FILES, &f);
        if (!cop_dump_remember(d, known)) {
                cop_close(known.own_fd);
                return cop_error_errno(err, ENOMEM, "collecting descriptors");
        }
        return (int)known.index;
}

/* The engine keeps a duplicate under a number of its own, so that later ones can be compared with it. */
int cop_dump_own_fd(struct cop_dump *d, uint32_t proc, int fd, struct cop_error *err)
{
        _cleanup_close_ int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_free_ struct cop_fd_info *fi = calloc(1, sizeof(*fi));
        struct cop_proc me = {.nspid = d->tree.procs[proc].nspid};

        if (!fi || self < 0)
                return cop_error_errno(err, ENOMEM, "collecting descriptors in flight");
        int r = collect_fd(self, &me, fd, fi, err);
        if (r == 0) {
                struct cop_dump_file *same = find_same(d, getpid(), fd, fi);
                int kept = same ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
                r = same ? (int)same->index : dump_new_file(d, getpid(), proc, kept, fi, err);
                struct cop_dump_file *known = !same && r >= 0 ? cop_dump_known_index(d, (uint32_t)r) : NULL;
                if (known) {
                        cop_close(known->own_fd);
                        known->own_fd = kept;
                } else
                        cop_close(kept);
        }
        free(fi->text);
        return r;
}

static int dump_process_fds(struct cop_dump *d, uint32_t proc, struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[proc];
        uint32_t first = cop_image_count(d->writer, IMG_FDS), first_lock = cop_image_count(d->writer, IMG_LOCKS);
        struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc);
        struct img_tree *tree = cop_image_record(d->writer, IMG_TREE, 0);
        _cleanup_free_ struct cop_fd_info *fi = calloc(1, sizeof(*fi));
        _cleanup_free_ int *list = NULL;
        size_t n;
        int r = fi ? cop_procfs_numbers(p->dir_fd, "fd", &list, &n, err)
                   : cop_error_errno(err, ENOMEM, "collecting descriptors");

        if (r < 0)
                return r;
        ip->first_lock = first_lock;
        for (size_t i = 0; i < n; i++) {
                struct cop_dump_file *same;
                struct img_fd record = {.fd = list[i]};
                r = collect_fd(p->dir_fd, p, list[i], fi, err);
                if (r == 0) {
                        same = find_same(d, p->living, list[i], fi);
                        r = same ? (int)same->index : dump_new_file(d, p->living, proc, list[i], fi, err);
                }
                if (r >= 0) {
                        record.file = (uint32_t)r;
                        record.cloexec = (fi->flags & O_CLOEXEC) != 0;
                        cop_image_add(d->writer, IMG_FDS, &record);
                        r = cop_dump_locks(d, proc, list[i], fi->text, err);
                        if ((uint32_t)list[i] > tree->max_fd)
                                tree->max_fd = (uint32_t)list[i];
                }
                free(fi->text);
                fi->text = NULL;
                if (r < 0)
                        return r;
        }
        ip->first_fd = first;
        ip->fds = (uint32_t)n;
        return 0;
}

/* ---- second pass ---- */

/* The descriptor of a process by its number; they are in ascending order. */
static const struct img_fd *find_fd(struct cop_dump *d, const struct img_proc *ip, int number)
{
        uint32_t low = ip->first_fd, high = ip->first_fd + ip->fds;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                const struct img_fd *fd = cop_image_record(d->writer, IMG_FDS, middle);
                if (fd->fd == number)
                        return fd;
                if (fd->fd < number)
                        low = middle + 1;
                else
                        high = middle;
        }
        return NULL;
}

static bool is_socket(const struct cop_dump *d, uint32_t file, const struct cop_dump_target *target)
{
        const struct img_file *f = cop_image_record(d->writer, IMG_FILES, file);

        return f && cop_is_socket(f) && f->ino == target->ino &&
               ((uint64_t)major(f->dev) << 20 | minor(f->dev)) == target->sdev;
}

/* Usually the number still names the registered file; a duplicate may be all that is left.  The epoll may be in flight. */
static uint32_t find_registered(struct cop_dump *d, const struct cop_dump_file *known, int number, uint32_t nth,
                                const struct cop_dump_target *target)
{
        const struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, known->proc);
        const struct img_fd *fd = find_fd(d, ip, number);
        struct kcmp_epoll_slot slot = {.efd = (uint32_t)known->fd, .tfd = (uint32_t)number, .toff = nth};
        pid_t pid = d->tree.procs[known->proc].living;

        /* A socket has one description, so its inode tells.  The kernel looks at all registrations to answer one kcmp. */
        if (fd && is_socket(d, fd->file, target))
                return fd->file;
        if (fd && syscall(SYS_kcmp, pid, known->pid, KCMP_EPOLL_TFD, (long)number, &slot) == 0)
                return fd->file;
        for (uint32_t i = 0; i < ip->fds; i++) {
                fd = cop_image_record(d->writer, IMG_FDS, ip->first_fd + i);
                if (fd->fd != number && fd->fd != known->fd &&
                    syscall(SYS_kcmp, pid, known->pid, KCMP_EPOLL_TFD, (long)fd->fd, &slot) == 0)
                        return fd->file;
        }
        return IMG_NONE;
}

/* How many registrations come before this one under the same number, as the kernel lists them. */
static uint32_t count_before(struct cop_dump *d, const struct img_file *f, uint32_t k)
{
        const struct img_watch *w = cop_image_record(d->writer, IMG_WATCHES, f->first_watch);
        uint32_t n = 0;

        for (uint32_t i = 0; i < k; i++)
                n += w[i].fd == w[k].fd;
        return n;
}

static int resolve_epoll(struct cop_dump *d, struct cop_dump_file *known, struct cop_error *err)
{
        const struct img_file *f = cop_image_record(d->writer, IMG_FILES, known->index);

        for (uint32_t k = 0; k < f->watches; k++) {
                struct img_watch *w = cop_image_record(d->writer, IMG_WATCHES, f->first_watch + k);
                w->file = find_registered(d, known, w->fd, count_before(d, f, k), &d->targets[f->first_watch + k]);
                if (w->file == IMG_NONE)
                        return cop_not_freezable(
                                d, known->proc, err,
                                "has an epoll (fd %d) with a registration whose descriptor %d is closed", known->fd,
                                w->fd);
        }
        return 0;
}

/* There a watch is told of with the device of the overlay, a file with that of its layer. */
static bool is_on_overlay(const struct cop_dump *d, uint32_t file)
{
        const struct cop_dump_file *known = cop_dump_known_index(d, file);
        struct statfs fs;
        char path[64];

        if (!known || known->mapping)
                return false;
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", known->pid, known->fd);
        return statfs(path, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* What has no name is known by who has it open, and what has one that cannot be told may be. */
static uint32_t find_watched(struct cop_dump *d, const struct cop_dump_target *target)
{
        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_image_record(d->writer, IMG_FILES, i);
                bool can = f->kind == IMG_FILE_REGULAR || f->kind == IMG_FILE_DIRECTORY || f->kind == IMG_FILE_MEMFD ||
                           f->kind == IMG_FILE_PIPE || f->kind == IMG_FILE_FIFO;
                if (can && f->ino == target->ino &&
                    (((uint64_t)major(f->dev) << 20 | minor(f->dev)) == target->sdev ||
                     (f->kind == IMG_FILE_REGULAR && is_on_overlay(d, i))))
                        return i;
        }
        return IMG_NONE;
}

static int resolve_inotify(struct cop_dump *d, struct cop_dump_file *known, struct cop_error *err)
{
        const struct img_file *f = cop_image_record(d->writer, IMG_FILES, known->index);
        char path[COP_DUMP_LINK];

        for (uint32_t k = f->first_watch; k < f->first_watch + f->watches; k++) {
                struct img_watch *w = cop_image_record(d->writer, IMG_WATCHES, k);
                if (w->path.length > 0)
                        continue;
                w->file = find_watched(d, &d->targets[k]);
                if (w->file != IMG_NONE)
                        continue;
                if (cop_dump_watch_search(d, known->proc, &d->targets[k], path, sizeof(path)) == 0)
                        w->path = cop_image_puts(d->writer, path);
                else
                        return cop_not_freezable(d, known->proc, err,
                                                 "has an inotify watch (fd %d) on a file that cannot be named",
                                                 known->fd);
        }
        return 0;
}

static void resolve_terminals(struct cop_dump *d)
{
        for (uint32_t i = 0; i < d->tree.count; i++) {
                struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, i);
                struct cop_procfs_stat st;
                if (d->tree.procs[i].zombie || ip->pid != ip->sid ||
                    cop_procfs_stat(d->tree.procs[i].dir_fd, &st, NULL) < 0 || st.tty_nr == 0)
                        continue;
                uint64_t index = ((uint64_t)st.tty_nr & 0xff) | ((uint64_t)st.tty_nr >> 12 & 0xfff00);
                for (uint32_t k = 0; k < cop_image_count(d->writer, IMG_FILES); k++) {
                        const struct img_file *f = cop_image_record(d->writer, IMG_FILES, k);
                        bool outside = f->kind == IMG_FILE_EXTERNAL && f->arg[0] && major(f->arg[0]) >= 136 &&
                                       major(f->arg[0]) <= 143 && minor(f->arg[0]) == index;
                        if ((f->kind == IMG_FILE_PTMX && f->arg[0] == index) || outside) {
                                ip->tty = k;
                                ip->tty_pgrp = (uint32_t)cop_pid_inside(d->tree.pidns_fd, st.tpgid);
                        }
                }
        }
}

/* What can be told only when all descriptors are known. */
static int resolve(struct cop_dump *d, size_t first, struct cop_error *err)
{
        int r = 0;

        for (size_t i = first; i < d->file_count && r == 0; i++) {
                const struct img_file *f = cop_image_record(d->writer, IMG_FILES, d->files[i].index);
                if (f && f->kind == IMG_FILE_EPOLL && !d->files[i].mapping)
                        r = resolve_epoll(d, &d->files[i], err);
                if (f && f->kind == IMG_FILE_INOTIFY && !d->files[i].mapping)
                        r = resolve_inotify(d, &d->files[i], err);
        }
        for (size_t i = first; i < d->file_count && r == 0; i++) {
                const struct img_file *f = cop_image_record(d->writer, IMG_FILES, d->files[i].index);
                if (f && f->kind == IMG_FILE_PTMX && !d->files[i].mapping)
                        r = dump_tty_queues(d, &d->files[i], err);
        }
        return r;
}

int cop_dump_descriptors(struct cop_dump *d, struct cop_error *err)
{
        int r;

        for (uint32_t i = 0; i < d->tree.count; i++) {
                if (d->tree.procs[i].zombie)
                        continue;
                r = dump_process_fds(d, i, err);
                if (r < 0)
                        return r;
        }
        r = cop_dump_unix_queues(d, 0, err);
        if (r == 0)
                r = resolve(d, 0, err);
        if (r < 0)
                return r;
        resolve_terminals(d);
        return cop_dump_sockets_finish(d, err);
}

int cop_dump_descriptors_again(struct cop_dump *d, size_t first, struct cop_error *err)
{
        uint32_t file = first < d->file_count ? d->files[first].index : cop_image_count(d->writer, IMG_FILES);
        int r = cop_dump_unix_queues(d, first, err);

        if (r == 0)
                r = resolve(d, first, err);
        return r < 0 ? r : cop_dump_sockets_again(d, file, err);
}
