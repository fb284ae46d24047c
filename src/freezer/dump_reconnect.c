/* Unix connections that were accepted to see what was sent into them (dump_accept.c), put back in a tree that runs on, or that was to
 * end and cannot.
 *
 * Theory of operation.  There is no call to put an accepted connection back, and none to connect its client again.  What can be replaced
 * is the client's descriptors.  The tree stands still, so for each connection, in the order in which they had come:
 *
 *      a new socket with the client's options is connected to the listener, by the process that had connected (whom SO_PEERCRED will
 *      name): by a call inside it, or, when it has ended, by a child of ours with its pid;
 *      what had been sent is read from the accepted end and sent again, with descriptors, by their senders, of whom the same is true;
 *      the new socket is put over each number of the old one, in all processes, and registered with the epolls that had the old one;
 *      the old one ends with our duplicate of it, and with it its registrations.  Then an abstract name is free for the new one.
 *
 * For a client that had closed the new socket is closed, too.  The tree sees another inode (fstat), and in an edge-triggered epoll one
 * more event that the client can be written to; calls that wait on it begin again with the new one.
 *
 * What cannot be replaced is refused before anything is accepted in a tree that is to run on: a client that is in flight in other queues
 * than those that wait here, that has a name which is a file, or that sends signals (F_SETOWN); an epoll that has it under a number which
 * is another's by now.  An engine that is killed in between costs the connections.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/rights.h"
#include "freezer/child_call.h"
#include "freezer/dump_sock.h"

#define ROOM (8 << 20)   /* bytes: for sending again what a larger buffer may have held */
#define NUMBERS_MAX 64UL /* descriptors that one process has of a client */

/* ---- calls inside the processes of the tree ---- */

/* What such a call works on, at the beginning of a task's data. */
struct scratch {
        int pair[2];
        struct msghdr message;
        struct iovec iov;
        char byte;
        char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
        struct sockaddr_un address;
        struct epoll_event event;
};

static uint64_t at(const struct cop_proc *p, size_t offset)
{
        return cop_batch_data(p, &p->tasks[0], offset);
}

#define AT(p, member) at(p, offsetof(struct scratch, member))

/* The first call that failed decides. */
static int run(struct cop_proc *p, struct cop_op *ops, size_t n, struct scratch *s)
{
        struct cop_task *t = &p->tasks[0];
        int r = cop_batch_start(p, t, ops, n, s, sizeof(*s), NULL);

        if (r == 0)
                r = cop_batch_wait(p, t, ops, n, s, sizeof(*s), NULL);
        for (size_t i = 0; i < n && r == 0; i++)
                r = ops[i].result < 0 ? (int)ops[i].result : 0;
        return r;
}

static struct cop_op op_close(int fd)
{
        return cop_op(SYS_close, 0, (uint64_t)fd, 0, 0, 0, 0, 0);
}

static struct cop_op op_pair(const struct cop_proc *p)
{
        return cop_op(SYS_socketpair, 0, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, AT(p, pair), 0, 0);
}

static int send_fd(int to, int fd)
{
        char byte = 0, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

        cop_rights_put(&m, &fd, 1);
        return sendmsg(to, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A descriptor of ours for a process of the tree, by way of a pair of sockets that it makes: its number there, or -errno. */
static int give(struct cop_proc *p, int fd)
{
        struct scratch s = {0};
        struct cop_op ops[4] = {op_pair(p)};
        int r = run(p, ops, 1, &s), given;

        if (r < 0)
                return r;
        _cleanup_close_ int end = (int)syscall(SYS_pidfd_getfd, p->pidfd, s.pair[1], 0);
        r = end < 0 ? -errno : send_fd(end, fd);
        s.iov = (struct iovec){.iov_base = (void *)AT(p, byte), .iov_len = 1}; /* NOLINT(performance-no-int-to-ptr) */
        s.message = (struct msghdr){
                .msg_iov = (void *)AT(p, iov), /* NOLINT(performance-no-int-to-ptr) */
                .msg_iovlen = 1,
                .msg_control = (void *)AT(p, control), /* NOLINT(performance-no-int-to-ptr) */
                .msg_controllen = sizeof(s.control),
        };
        ops[0] = cop_op(SYS_recvmsg, 0, (uint64_t)s.pair[0], AT(p, message), MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0, 0, 0);
        ops[1] = op_close(s.pair[0]);
        ops[2] = op_close(s.pair[1]);
        int ran = run(p, ops, 3, &s);
        if (r < 0 || ran < 0)
                return r < 0 ? r : ran;
        const struct cmsghdr *c = (const void *)s.control;
        if (s.message.msg_controllen < CMSG_LEN(sizeof(given)) || c->cmsg_type != SCM_RIGHTS)
                return -EMFILE; /* it was dropped for want of a number */
        memcpy(&given, CMSG_DATA(c), sizeof(given));
        return given;
}

/* Whether there are numbers for what is needed for a moment. */
static int probe_numbers(struct cop_proc *p)
{
        struct scratch s = {0};
        struct cop_op ops[5] = {op_pair(p)};
        int first[2], r = run(p, ops, 1, &s);

        if (r < 0)
                return r;
        memcpy(first, s.pair, sizeof(first));
        ops[0] = op_pair(p);
        r = run(p, ops, 1, &s);
        size_t n = 0;
        for (size_t i = 0; i < 2; i++) {
                ops[n++] = op_close(first[i]);
                if (r == 0)
                        ops[n++] = op_close(s.pair[i]);
        }
        int closed = run(p, ops, n, &s);
        return r < 0 ? r : closed;
}

/* ---- whether a client can be replaced ---- */

static bool is_among(struct cop_dump *d, const struct img_ref *files, uint32_t client)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        uint32_t file;

        for (size_t k = 0; k < files->length / sizeof(file); k++) {
                memcpy(&file, heap + files->offset + k * sizeof(file), sizeof(file));
                if (file == client)
                        return true;
        }
        return false;
}

/* In the queues of those that wait themselves it would be replaced. */
static bool is_in_flight(struct cop_dump *d, uint32_t client)
{
        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                bool own = f->kind == IMG_FILE_UNIX && !cop_socket_waits(f->arg[IMG_SOCK_STATE]);
                for (uint32_t k = 0; own && k < f->packets; k++) {
                        const struct img_packet *p = cop_image_record(d->writer, IMG_PACKETS, f->first_packet + k);
                        if (is_among(d, &p->files, client))
                                return true;
                }
        }
        return false;
}

/* The numbers that a process has of a file. */
static size_t numbers_of(struct cop_dump *d, uint32_t proc, uint32_t file, const struct img_fd *ret[NUMBERS_MAX])
{
        const struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc);
        size_t n = 0;

        for (uint32_t i = 0; i < ip->fds && n < NUMBERS_MAX; i++) {
                const struct img_fd *fd = cop_image_record(d->writer, IMG_FDS, ip->first_fd + i);
                if (fd->file == file)
                        ret[n++] = fd;
        }
        return n;
}

/* Calls visit for each registration of a file with an epoll, until it does not return 0. */
static int for_each_epoll(struct cop_dump *d, uint32_t file,
                          int (*visit)(struct cop_dump *d, const struct cop_dump_file *epoll,
                                       const struct img_watch *watch))
{
        int r = 0;

        for (size_t i = 0; i < d->file_count && r == 0; i++) {
                const struct img_file *f = cop_dump_file_at(d, d->files[i].index);
                if (f->kind != IMG_FILE_EPOLL || d->files[i].mapping)
                        continue;
                for (uint32_t k = 0; k < f->watches && r == 0; k++) {
                        const struct img_watch *w = cop_image_record(d->writer, IMG_WATCHES, f->first_watch + k);
                        if (w->file == file)
                                r = visit(d, &d->files[i], w);
                }
        }
        return r;
}

static int check_registration(struct cop_dump *d, const struct cop_dump_file *epoll, const struct img_watch *watch)
{
        const struct img_fd *list[NUMBERS_MAX];
        size_t n = numbers_of(d, epoll->proc, watch->file, list);

        if (epoll->pid == getpid())
                return -EOPNOTSUPP; /* in flight */
        for (size_t i = 0; i < n; i++)
                if (list[i]->fd == watch->fd)
                        return 0;
        return -EOPNOTSUPP;
}

/* It may have been lowered below numbers that are there. */
static uint64_t limit_of(const struct cop_proc *p)
{
        struct rlimit limit;

        return prlimit(p->living, RLIMIT_NOFILE, NULL, &limit) < 0 ? UINT64_MAX : limit.rlim_cur;
}

static const char *what_hinders(struct cop_dump *d, uint32_t client)
{
        const struct img_file *f = cop_dump_file_at(d, client);
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        if (is_in_flight(d, client))
                return "which is in flight";
        if (f->owner[1] != 0 || f->flags & O_ASYNC)
                return "which sends signals";
        if (f->path.length > sizeof(sa_family_t) && heap[f->path.offset + offsetof(struct sockaddr_un, sun_path)] != 0)
                return "which is bound to a file";
        if (for_each_epoll(d, client, check_registration) < 0)
                return "which an epoll has under another number";
        return NULL;
}

/* The same of the numbers that processes have left. */
static const char *lacks_numbers(struct cop_dump *d, uint32_t client)
{
        const struct img_fd *list[NUMBERS_MAX];

        for (uint32_t i = 0; i < d->tree.count; i++) {
                struct cop_proc *p = &d->tree.procs[i];
                size_t n = p->zombie ? 0 : numbers_of(d, i, client, list);
                if (n == NUMBERS_MAX)
                        return "which has too many numbers";
                if (n > 0 && (uint64_t)list[n - 1]->fd >= limit_of(p))
                        return "whose number is beyond its process's limit";
                if (n > 0 && probe_numbers(p) < 0)
                        return "where there are no numbers left for two pairs of descriptors";
        }
        return NULL;
}

int cop_dump_may_reconnect(struct cop_dump *d, uint32_t client, struct cop_error *err)
{
        const struct cop_dump_file *known = cop_dump_known_socket(d, client);
        const char *why = what_hinders(d, client);

        if (!why)
                why = lacks_numbers(d, client);
        return !why ? 0
                    : cop_not_freezable(d, known->proc, err,
                                        "waits to be accepted at a unix listener by a socket (fd %d) %s: what is in "
                                        "that listener's queue only a suspend can keep",
                                        known->fd, why);
}

/* ---- connecting ---- */

struct reconnect {
        struct cop_dump *d;
        uint32_t file, listener; /* in IMG_FILES; a file of state IMG_SOCK_LEFT had been closed */
        int accepted;            /* borrowed */
        int fd;                  /* owned: the new one */
        struct ucred maker;      /* whom SO_PEERCRED names at the accepted end; the pid as it is inside, 0: unknown */
        bool connected;
        const struct reconnect *all; /* borrowed: all of them */
        size_t count;
};

static const struct sockaddr *listener_address(const struct reconnect *c, socklen_t *ret_length)
{
        const char *heap = cop_image_record(c->d->writer, IMG_HEAP, 0);
        const struct img_ref *path = &cop_dump_file_at(c->d, c->listener)->path;

        *ret_length = path->length;
        return (const void *)(heap + path->offset);
}

static int connect_here(void *argument)
{
        const struct reconnect *c = argument;
        socklen_t length;
        const struct sockaddr *address = listener_address(c, &length);

        return cop_socket_connect_unix(c->fd, cop_dump_known_socket(c->d, c->listener)->own_fd, address, length);
}

static int connect_as_maker(void *argument)
{
        const struct reconnect *c = argument;
        int r = cop_child_identity(c->maker.uid, c->maker.gid);

        return r < 0 ? r : connect_here(argument);
}

static struct cop_proc *find_proc(struct cop_dump *d, pid_t nspid)
{
        for (size_t i = 0; i < d->tree.count; i++)
                if (d->tree.procs[i].nspid == nspid)
                        return &d->tree.procs[i];
        return NULL;
}

/* In the tree's pid namespace: asks who had connected, and does it for him if he has ended. */
static int connect_inside(void *argument)
{
        struct reconnect *c = argument;
        socklen_t length = sizeof(c->maker);

        if (getsockopt(c->accepted, SOL_SOCKET, SO_PEERCRED, &c->maker, &length) < 0)
                return -errno;
        if (c->maker.pid > 1 && !find_proc(c->d, c->maker.pid))
                c->connected = cop_child_call(c->maker.pid, connect_as_maker, c) == 0;
        return 0;
}

/* By a call inside a process, in whose place it may be that the listener has no name. */
static int connect_in(const struct reconnect *c, struct cop_proc *p)
{
        struct scratch s = {0};
        struct cop_op ops[4];
        socklen_t length;
        const struct sockaddr *address = listener_address(c, &length);
        _cleanup_close_ int file = cop_socket_file(cop_dump_known_socket(c->d, c->listener)->own_fd);
        int number = give(p, c->fd), file_number = number < 0 || file < 0 ? -EBADF : give(p, file);
        bool reachable = file < 0 || file_number >= 0; /* else its address may lead to another by now */
        size_t n = 0;

        if (number < 0)
                return number;
        memcpy(&s.address, address, MIN_OF(length, (socklen_t)sizeof(s.address)));
        if (file_number >= 0) {
                cop_socket_file_address(file_number, &s.address);
                length = sizeof(s.address);
        }
        if (reachable)
                ops[n++] = cop_op(SYS_connect, 0, (uint64_t)number, AT(p, address), length, 0, 0, 0);
        ops[n++] = op_close(number);
        if (file_number >= 0)
                ops[n++] = op_close(file_number);
        int r = run(p, ops, n, &s);
        return reachable ? r : file_number;
}

/* Whoever it is that does it at last: nothing may get lost. */
static int connect_again(struct reconnect *c)
{
        (void)cop_dump_inside(c->d, connect_inside, c);
        struct cop_proc *p = c->connected || c->maker.pid <= 0 ? NULL : find_proc(c->d, c->maker.pid);
        if (p && !p->zombie)
                c->connected = connect_in(c, p) == 0;
        return c->connected ? 0 : connect_here(c);
}

/* ---- sending again ---- */

struct message {
        struct msghdr head;
        struct iovec iov;
        struct ucred sender;     /* pid 0: nobody was noted */
        int fds[COP_RIGHTS_MAX]; /* owned */
        size_t fd_count;
        int to, flags;
        bool stream;
        char control[COP_RIGHTS_SPACE(COP_RIGHTS_MAX) + CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
};

static void read_control(struct message *m)
{
        const struct cmsghdr *rights = cop_rights_find(&m->head);

        if (!cop_dump_get_credentials(&m->head, &m->sender))
                m->sender = (struct ucred){0};
        m->fd_count = MIN_OF(cop_rights_count(rights), COP_RIGHTS_MAX);
        if (rights)
                memcpy(m->fds, CMSG_DATA(rights), m->fd_count * sizeof(int));
}

static void write_control(struct message *m, bool sender)
{
        size_t rights = m->fd_count ? COP_RIGHTS_SPACE(m->fd_count) : 0;

        memset(m->control, 0, sizeof(m->control));
        m->head.msg_control = m->control;
        if (rights)
                cop_rights_put(&m->head, m->fds, m->fd_count);
        m->head.msg_controllen = rights + (sender ? CMSG_SPACE(sizeof(m->sender)) : 0);
        if (sender) {
                struct cmsghdr *c = (void *)(m->control + rights);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_CREDENTIALS;
                c->cmsg_len = CMSG_LEN(sizeof(m->sender));
                memcpy(CMSG_DATA(c), &m->sender, sizeof(m->sender));
        }
}

static int send_pieces(struct message *m, bool sender)
{
        do {
                write_control(m, sender);
                ssize_t sent = sendmsg(m->to, &m->head, MSG_DONTWAIT | MSG_NOSIGNAL | m->flags);
                if (sent < 0)
                        return -errno;
                m->iov.iov_base = (char *)m->iov.iov_base + sent;
                m->iov.iov_len -= (size_t)sent;
                for (size_t i = 0; i < m->fd_count; i++)
                        close(m->fds[i]);
                m->fd_count = 0;
        } while (m->stream && m->iov.iov_len > 0);
        return 0;
}

static int send_as_sender(void *argument)
{
        struct message *m = argument;
        int r = cop_child_identity(m->sender.uid, m->sender.gid);

        return r < 0 ? r : send_pieces(m, false);
}

/* In the tree's pid namespace. */
static int send_message(struct message *m)
{
        int r = send_pieces(m, m->sender.pid != 0);

        if (r == -ESRCH) /* he has ended */
                r = cop_child_call(m->sender.pid, send_as_sender, m);
        if (r == -EPERM || r == -EEXIST || r == -EINVAL)
                r = send_pieces(m, false);
        for (size_t i = 0; i < m->fd_count; i++)
                close(m->fds[i]);
        m->fd_count = 0;
        return r;
}

/* Clients that wait themselves and are in flight here: the new ones instead. */
static void exchange_clients(const struct reconnect *c, struct message *m)
{
        struct stat st;

        for (size_t i = 0; i < m->fd_count; i++) {
                if (fstat(m->fds[i], &st) < 0 || !S_ISSOCK(st.st_mode))
                        continue;
                for (size_t k = 0; k < c->count; k++) {
                        const struct img_file *f = cop_dump_file_at(c->d, c->all[k].file);
                        if (f->ino == st.st_ino && f->dev == st.st_dev && c->all[k].fd >= 0)
                                (void)dup3(c->all[k].fd, m->fds[i], O_CLOEXEC);
                }
        }
}

static void prepare_reading(const struct reconnect *c)
{
        int on = 1, off = 0, none = -1;

        (void)setsockopt(c->accepted, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
        (void)setsockopt(c->accepted, SOL_SOCKET, SO_PASSPIDFD, &off, sizeof(off));
        (void)setsockopt(c->accepted, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
        (void)setsockopt(c->accepted, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
}

/* How much a read of a stream gives, when it ends with a message to which descriptors belong; else 0. */
static size_t ends_with_rights(int fd, char *buf, size_t size)
{
        /* Room for credentials only: descriptors are not taken. */
        char control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
        struct iovec iov = {.iov_base = buf, .iov_len = size};
        struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(fd, &h, MSG_PEEK | MSG_DONTWAIT);

        return got > 0 && h.msg_flags & MSG_CTRUNC ? (size_t)got : 0;
}

/* What comes next, as it was sent: a read joins what comes before a message with descriptors to that, so there it is given no room for the
 * last byte; then it leaves that message.  As recvmsg. */
static ssize_t read_message(int fd, struct message *m, char *buf, size_t size)
{
        size_t with_rights = m->stream && !m->flags ? ends_with_rights(fd, buf, size) : 0;
        struct iovec cut[] = {{.iov_base = buf, .iov_len = with_rights - 1}, {.iov_base = NULL, .iov_len = 1}};
        ssize_t got = -1;

        m->iov = (struct iovec){.iov_base = buf, .iov_len = m->flags ? 1 : size};
        m->head = (struct msghdr){.msg_iov = cut,
                                  .msg_iovlen = ELEMENTSOF(cut),
                                  .msg_control = m->control,
                                  .msg_controllen = sizeof(m->control)};
        if (with_rights > 1)
                got = recvmsg(fd, &m->head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got <= 0) {
                m->head.msg_controllen = sizeof(m->control);
                m->head.msg_iov = &m->iov;
                m->head.msg_iovlen = 1;
                got = recvmsg(fd, &m->head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        }
        m->head.msg_iov = &m->iov;
        m->head.msg_iovlen = 1;
        m->iov.iov_len = (size_t)MAX_OF(got, 0);
        return got;
}

/* In the tree's pid namespace: numbers of senders are those that the tree knows. */
static int send_all(void *argument)
{
        const struct reconnect *c = argument;
        _cleanup_free_ struct message *m = calloc(1, sizeof(*m));
        int queued = 0, urgent = 0, r = 0;

        prepare_reading(c);
        (void)ioctl(c->accepted, SIOCINQ, &queued);
        size_t size = MIN_OF((size_t)MAX_OF(queued, 0), COP_SOCKET_QUEUE_MAX) + 1;
        _cleanup_free_ char *buf = malloc(size);
        if (!m || !buf)
                return -ENOMEM;
        m->to = c->fd;
        m->stream = cop_dump_file_at(c->d, c->file)->arg[IMG_SOCK_TYPE] == SOCK_STREAM;
        while (r == 0) {
                /* A read that is not of the urgent byte alone would join it with what follows. */
                m->flags = m->stream && ioctl(c->accepted, SIOCATMARK, &urgent) == 0 && urgent ? MSG_OOB : 0;
                ssize_t got = read_message(c->accepted, m, buf, size);
                if (got < 0)
                        return errno == EAGAIN ? 0 : -errno;
                (void)ioctl(c->accepted, SIOCINQ, &queued);
                if (got == 0 && queued <= 0 && cop_dump_hung_up(c->accepted)) /* else an empty message */
                        return 0;
                read_control(m);
                exchange_clients(c, m);
                r = send_message(m);
        }
        return r;
}

/* ---- replacing ---- */

static int replace_in(struct cop_dump *d, uint32_t proc, const struct reconnect *c)
{
        const struct img_fd *list[NUMBERS_MAX];
        struct cop_proc *p = &d->tree.procs[proc];
        size_t n = p->zombie ? 0 : numbers_of(d, proc, c->file, list);
        struct cop_op ops[NUMBERS_MAX + 2];
        struct scratch s = {0};

        if (n == 0)
                return 0;
        int number = give(p, c->fd);
        if (number < 0)
                return number;
        for (size_t i = 0; i < n; i++)
                ops[i] = cop_op(SYS_dup3, 0, (uint64_t)number, (uint64_t)list[i]->fd, list[i]->cloexec ? O_CLOEXEC : 0,
                                0, 0, 0);
        ops[n] = op_close(number);
        return run(p, ops, n + 1, &s);
}

static int register_again(struct cop_dump *d, const struct cop_dump_file *epoll, const struct img_watch *watch)
{
        struct cop_proc *p = &d->tree.procs[epoll->proc];
        struct scratch s = {.event = {.events = watch->events, .data.u64 = watch->data}};
        struct cop_op ops[2] = {
                cop_op(SYS_epoll_ctl, 0, (uint64_t)epoll->fd, EPOLL_CTL_ADD, (uint64_t)watch->fd, AT(p, event), 0, 0)};

        return run(p, ops, 1, &s);
}

static void become_like(const struct reconnect *c, int old)
{
        const struct img_file *f = cop_dump_file_at(c->d, c->file);
        const char *heap = cop_image_record(c->d->writer, IMG_HEAP, 0);
        const struct img_sockopt *list = (const void *)(heap + f->data.offset);
        struct stat st;

        if (f->arg[IMG_SOCK_SHUTDOWN] & 2)
                (void)shutdown(c->fd, SHUT_WR);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 1)
                (void)shutdown(c->fd, SHUT_RD);
        cop_socket_apply_options(f, list, c->fd);
        cop_socket_apply_last(f, heap + f->filter.offset, list, c->fd);
        (void)fcntl(c->fd, F_SETFL, (int)f->flags);
        if (fstat(old, &st) == 0)
                (void)fchown(c->fd, st.st_uid, st.st_gid);
}

/* To its end each process has the old one or the new one. */
static int replace(struct reconnect *c)
{
        struct cop_dump *d = c->d;
        struct cop_dump_file *known = cop_dump_known_socket(d, c->file);
        int r = 0;

        become_like(c, known->own_fd);
        for (uint32_t i = 0; i < d->tree.count && r == 0; i++)
                r = replace_in(d, i, c);
        if (r == 0)
                r = for_each_epoll(d, c->file, register_again);
        if (r < 0)
                return r;
        close(known->own_fd);
        known->own_fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
        const struct img_file *f = cop_dump_file_at(d, c->file);
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        if (f->path.length > sizeof(sa_family_t) &&
            bind(c->fd, (const void *)(heap + f->path.offset), f->path.length) < 0)
                return -errno;
        return 0;
}

static int reconnect(struct reconnect *c)
{
        int r = connect_again(c);

        if (r < 0)
                return r;
        cop_socket_set_buffer(c->fd, SO_SNDBUF, MAX_OF(ROOM, cop_socket_option(c->fd, SO_SNDBUF)));
        r = cop_dump_inside(c->d, send_all, c);
        if (r == -EPERM) /* not even inside: from here */
                r = send_all(c);
        if (r == 0 && cop_dump_file_at(c->d, c->file)->arg[IMG_SOCK_STATE] != IMG_SOCK_LEFT)
                r = replace(c);
        return r;
}

static int begin_reconnect(struct cop_dump *d, struct reconnect *c, const struct cop_dump_waiting *w)
{
        const struct img_file *f = w->file == IMG_NONE ? NULL : cop_dump_file_at(d, w->file);

        *c = (struct reconnect){.d = d, .file = w->file, .accepted = w->fd, .fd = -EBADF};
        if (!f || f->kind != IMG_FILE_UNIX || (f->arg[IMG_SOCK_STATE] != IMG_SOCK_LEFT && what_hinders(d, w->file)))
                return -EOPNOTSUPP;
        /* In a tree that is to run on that was asked before anything was accepted. */
        if (d->request->flags & COP_FREEZE_KILL && f->arg[IMG_SOCK_STATE] != IMG_SOCK_LEFT && lacks_numbers(d, w->file))
                return -EOPNOTSUPP;
        c->listener = (uint32_t)f->arg[IMG_SOCK_LISTENER];
        c->fd = cop_dump_new_socket(d, AF_UNIX, (int)f->arg[IMG_SOCK_TYPE] | SOCK_NONBLOCK, 0, NULL);
        return c->fd < 0 ? c->fd : 0;
}

int cop_dump_reconnect(struct cop_dump *d, struct cop_error *err)
{
        size_t count = d->waiting_count, lost = 0;
        _cleanup_free_ struct reconnect *list = calloc(count + 1, sizeof(*list));
        int dumpable = prctl(PR_GET_DUMPABLE), r = 0;

        if (count == 0)
                return 0;
        if (!list)
                return cop_error_errno(err, ENOMEM, "putting unix connections back that are not accepted yet");
        for (size_t i = 0; i < count; i++) {
                int begun = begin_reconnect(d, &list[i], &d->waiting[i]);
                r = r < 0 ? r : begun;
        }
        for (size_t i = 0; i < count; i++) {
                struct reconnect *c = &list[i];
                c->all = list;
                c->count = count;
                int back = c->fd < 0 ? -EBADF : reconnect(c);
                if (back < 0) {
                        r = r < 0 ? r : back;
                        d->waiting[lost++] = d->waiting[i];
                } else
                        cop_close(d->waiting[i].fd);
        }
        for (size_t i = 0; i < count; i++)
                cop_close(list[i].fd);
        d->waiting_count = lost;
        if (dumpable == 1) /* a child with another identity has cleared it for the memory that we share */
                (void)prctl(PR_SET_DUMPABLE, 1);
        return r < 0 ? cop_error_errno(err, -r, "putting a unix connection back that is not accepted yet") : 0;
}
