/* TCP connections that are not accepted yet, with what was sent into them.
 *
 * What a client has sent lies in the queue of a socket that nobody has: there is no call to read it but accept, and none to put
 * an accepted connection back.  The tree stands still, so all that wait at a listener are accepted and looked at; then each client
 * is silently taken from its connection (TCP_REPAIR mode: no segment tells of it) and connected again, through its own description
 * and from its own port, and sends again what it had sent.  In order, so that the tree finds everything as it was, whether it runs
 * on or the freeze fails later; an epoll may tell once more that a client can be written to.  An engine that is killed in between
 * has cost the connections.
 *
 * Who has closed is done for by a socket that connects, sends and closes: from the same port, or in a tree that runs on, where the
 * kernel remembers that one for a minute, from another.
 *
 * Clients outside the tree cannot be treated so.  Where one waits, too, a tree that runs on is refused.  One that is to be ended loses
 * connections from outside anyway: there it is done as the last thing before the commit.
 *
 * Disconnecting changes a description in a few ways that are undone: its shut-down directions, SO_REUSEADDR, SO_PEEK_OFF, the port.
 * TCP_MAXSEG and TCP_WINDOW_CLAMP, which a thaw does not keep either, are the kernel's own again.
 */
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/dump_sock.h"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

#define WAIT_MS 3000

/* An accepted connection, until it is put back. */
struct taken {
        int fd;        /* owned */
        uint32_t file; /* the client's, or one made for who has closed; IMG_NONE: from outside */
};

/* What waits at a listener. */
struct crowd {
        unsigned count;           /* all of it, told by the listener itself */
        bool sent, left, outside; /* clients of the tree that have sent something; closed ones; others */
};

struct endpoint {
        struct sockaddr_storage address;
        socklen_t length;
};

/* ---- who waits ---- */

static bool address_of(struct cop_dump *d, const struct img_ref *ref, struct sockaddr_in6 *ret)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return cop_socket_as_ipv6(heap + ref->offset, ref->length, ret);
}

static bool same_address(const struct sockaddr_in6 *a, const struct sockaddr_in6 *b)
{
        return a->sin6_port == b->sin6_port && memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0;
}

static bool is_stream(const struct img_file *f)
{
        return f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_TYPE] == SOCK_STREAM;
}

/* The client in the tree of a connection whose accepted end has these addresses. */
static uint32_t find_client(struct cop_dump *d, const struct sockaddr_in6 *local, const struct sockaddr_in6 *remote)
{
        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                struct sockaddr_in6 own, to;
                if (is_stream(f) &&
                    (f->arg[IMG_SOCK_STATE] == IMG_SOCK_CONNECTED || f->arg[IMG_SOCK_STATE] == IMG_SOCK_WAITING) &&
                    address_of(d, &f->path, &own) && address_of(d, &f->peer, &to) && same_address(&own, remote) &&
                    same_address(&to, local) && cop_dump_known_socket(d, i))
                        return i;
        }
        return IMG_NONE;
}

static bool is_loopback(const struct in6_addr *a)
{
        return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

/* Whether the client of a connection that nobody in the tree has was here and has closed it. */
static bool has_left(const struct cop_tcp_table *t, const struct sockaddr_in6 *local, const struct sockaddr_in6 *remote,
                     int state)
{
        for (size_t i = 0; i < t->count; i++)
                if (same_address(&t->list[i].local, remote) && same_address(&t->list[i].remote, local))
                        return t->list[i].ino == 0;
        return state != TCP_ESTABLISHED &&
               (is_loopback(&remote->sin6_addr) ||
                memcmp(&remote->sin6_addr, &local->sin6_addr, sizeof(local->sin6_addr)) == 0);
}

static unsigned waiting_at(int listener)
{
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        return getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 ? 0 : info.tcpi_unacked;
}

/* At all listeners of a port: those with SO_REUSEPORT share what comes. */
static unsigned waiting_at_port(struct cop_dump *d, uint16_t port)
{
        unsigned sum = 0;

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                const struct cop_dump_file *known = cop_dump_known_socket(d, i);
                struct sockaddr_in6 a;
                if (is_stream(f) && f->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING && known &&
                    address_of(d, &f->path, &a) && a.sin6_port == port)
                        sum += waiting_at(known->own_fd);
        }
        return sum;
}

/* `count` was told before the table was made: what comes later stands behind. */
static struct crowd look_at(struct cop_dump *d, const struct cop_tcp_table *t, uint32_t listener, unsigned count)
{
        struct crowd c = {.count = count};
        struct sockaddr_in6 a;

        if (!address_of(d, &cop_dump_file_at(d, listener)->path, &a))
                return c;
        for (size_t i = 0; i < t->count; i++) {
                const struct cop_tcp_info *e = &t->list[i];
                int out = 0;
                if (e->ino != 0 || (e->state != TCP_ESTABLISHED && e->state != TCP_CLOSE_WAIT) ||
                    e->local.sin6_port != a.sin6_port ||
                    (!IN6_IS_ADDR_UNSPECIFIED(&a.sin6_addr) && !same_address(&a, &e->local)))
                        continue;
                uint32_t client = find_client(d, &e->local, &e->remote);
                if (client == IMG_NONE) {
                        bool left = has_left(t, &e->local, &e->remote, e->state);
                        c.left = c.left || left;
                        c.outside = c.outside || !left;
                        continue;
                }
                (void)ioctl(cop_dump_known_socket(d, client)->own_fd, SIOCOUTQ, &out);
                c.sent = c.sent || e->queued > 0 || out > 0 || e->state == TCP_CLOSE_WAIT;
        }
        return c;
}

/* ---- taking ---- */

/* All that one has sent who has closed: it will be sent again by another, so it may be read away, and more comes. */
static void drain(struct cop_dump *d, int fd, struct img_file *f)
{
        size_t size = 1UL << 18;
        _cleanup_free_ char *buf = malloc(size);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;
        int urgent = 0, on = 1;

        f->first_packet = cop_image_count(d->writer, IMG_PACKETS);
        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
        while (buf && poll(&p, 1, WAIT_MS) > 0 && ioctl(fd, SIOCATMARK, &urgent) == 0 &&
               (n = recv(fd, buf, urgent ? 1 : size, MSG_DONTWAIT)) > 0) {
                struct img_packet packet = {.data = cop_image_put(d->writer, buf, (size_t)n),
                                            .flags = urgent ? IMG_PACKET_URGENT : 0U};
                cop_image_add(d->writer, IMG_PACKETS, &packet);
                f->packets++;
        }
}

static void take_left(struct cop_dump *d, uint32_t listener, struct taken *t, const struct endpoint *remote)
{
        const struct img_file *l = cop_dump_file_at(d, listener);
        struct img_file f = {.kind = IMG_FILE_INET, .flags = O_RDWR};
        struct endpoint local = {.length = sizeof(local.address)};

        for (int i = 0; i <= IMG_SOCK_PROTOCOL; i++)
                f.arg[i] = l->arg[i];
        f.arg[IMG_SOCK_STATE] = IMG_SOCK_LEFT;
        f.arg[IMG_SOCK_PEER] = IMG_NONE;
        f.arg[IMG_SOCK_LISTENER] = listener;
        f.path = cop_image_put(d->writer, &remote->address, remote->length);
        if (getsockname(t->fd, (struct sockaddr *)&local.address, &local.length) == 0)
                f.peer = cop_image_put(d->writer, &local.address, local.length);
        drain(d, t->fd, &f);
        t->file = cop_image_add(d->writer, IMG_FILES, &f);
}

static int take_client(struct cop_dump *d, uint32_t listener, const struct taken *t, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, t->file);

        f->arg[IMG_SOCK_STATE] = IMG_SOCK_WAITING;
        f->arg[IMG_SOCK_LISTENER] = listener;
        return cop_dump_stream(d, cop_dump_known_socket(d, t->file)->own_fd, t->fd, f->arg[IMG_SOCK_SHUTDOWN] & 2,
                               t->file, err);
}

/* 0 when there is none any more. */
static int take_one(struct cop_dump *d, const struct cop_tcp_table *table, uint32_t listener, struct taken *t,
                    struct cop_error *err)
{
        int from = cop_dump_known_socket(d, listener)->own_fd;
        struct pollfd p = {.fd = from, .events = POLLIN};
        struct endpoint remote = {.length = sizeof(remote.address)}, local = {.length = sizeof(local.address)};
        struct sockaddr_in6 there, here;
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        *t = (struct taken){.fd = -EBADF, .file = IMG_NONE};
        if (poll(&p, 1, 0) <= 0)
                return 0;
        t->fd = accept4(from, (struct sockaddr *)&remote.address, &remote.length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (t->fd < 0)
                return cop_error_errno(err, errno, "accepting a connection to see what was sent");
        if (!cop_socket_as_ipv6(&remote.address, remote.length, &there) ||
            getsockname(t->fd, (struct sockaddr *)&local.address, &local.length) < 0 ||
            !cop_socket_as_ipv6(&local.address, local.length, &here) ||
            getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
                return 1;
        t->file = find_client(d, &here, &there);
        int r = 0;
        if (t->file != IMG_NONE)
                r = take_client(d, listener, t, err);
        else if (has_left(table, &here, &there, info.tcpi_state))
                take_left(d, listener, t, &remote);
        return r < 0 ? r : 1;
}

/* ---- putting back ---- */

static int connect_within(int fd, const struct endpoint *to)
{
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int error = 0;
        socklen_t length = sizeof(error);

        if (connect(fd, (const struct sockaddr *)&to->address, to->length) == 0)
                return 0;
        if (errno != EINPROGRESS)
                return -errno;
        if (poll(&p, 1, WAIT_MS) <= 0)
                return -ETIMEDOUT;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 ? -errno : -error;
}

/* A port that was not bound to went with the connection: it becomes the only one to choose from. */
static int connect_from(int fd, uint16_t port, const struct endpoint *to)
{
        uint32_t range = 0, only = ntohs(port) | (uint32_t)ntohs(port) << 16;
        socklen_t length = sizeof(range);
        bool chosen = getsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, &length) == 0 &&
                      setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &only, sizeof(only)) == 0;
        int r = connect_within(fd, to);

        if (chosen)
                (void)setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof(range));
        return r == -EADDRNOTAVAIL ? connect_within(fd, to) : r;
}

/* More room for a moment, when what was in two queues does not go into them again. */
static int send_stubborn(int fd, const char *data, size_t n, int flags)
{
        int size = 0, locked = 0, larger = 0, r = 0;
        socklen_t length = sizeof(size);
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        while (n > 0 && r == 0) {
                ssize_t sent = send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
                if (sent > 0) {
                        data += sent;
                        n -= (size_t)sent;
                } else if (errno != EAGAIN)
                        r = -errno;
                else if (poll(&p, 1, larger ? WAIT_MS : 20) <= 0 && larger)
                        r = -ETIMEDOUT;
                else if (!(p.revents & POLLOUT)) {
                        larger = n > INT32_MAX / 8 ? INT32_MAX / 4 : (int)n * 2 + (1 << 20);
                        (void)getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length);
                        (void)getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &length);
                        larger += size;
                        cop_socket_set_buffer(fd, SO_SNDBUF, larger);
                }
        }
        if (larger) {
                cop_socket_set_buffer(fd, SO_SNDBUF, size);
                (void)setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked));
        }
        return r;
}

static int send_again(struct cop_dump *d, int fd, const struct img_file *f)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        int r = 0;

        for (uint32_t i = 0; i < f->packets && r == 0; i++) {
                const struct img_packet *p = cop_image_record(d->writer, IMG_PACKETS, f->first_packet + i);
                r = send_stubborn(fd, heap + p->data.offset, p->data.length,
                                  p->flags & IMG_PACKET_URGENT ? MSG_OOB : 0);
        }
        if (r == 0 && f->arg[IMG_SOCK_SHUTDOWN] & 2)
                (void)shutdown(fd, SHUT_WR);
        if (r == 0 && f->arg[IMG_SOCK_SHUTDOWN] & 1)
                (void)shutdown(fd, SHUT_RD);
        return r;
}

static int connect_nowhere(int fd)
{
        struct sockaddr nowhere = {.sa_family = AF_UNSPEC};

        return connect(fd, &nowhere, sizeof(nowhere)) < 0 ? -errno : 0;
}

/* Sends again; half of it must not pass for all: both ends are told by a reset. */
static int send_all_again(struct cop_dump *d, int fd, const struct img_file *f)
{
        int r = send_again(d, fd, f);

        if (r < 0)
                (void)connect_nowhere(fd);
        return r;
}

/* Both ends without a word to each other; of the client the description stays. */
static int disconnect(int fd, struct taken *t)
{
        int reuse, unused;
        int r = cop_dump_repair_begin(fd, &reuse);

        if (r < 0)
                return r;
        r = cop_dump_repair_begin(t->fd, &unused);
        if (r == 0)
                r = connect_nowhere(fd);
        if (r == 0)
                t->fd = cop_close(t->fd);
        cop_dump_repair_end(fd, reuse);
        return r;
}

static int put_back_client(struct cop_dump *d, struct taken *t)
{
        const struct img_file *f = cop_dump_file_at(d, t->file);
        int fd = cop_dump_known_socket(d, t->file)->own_fd, flags = fcntl(fd, F_GETFL), peek = -1;
        struct endpoint own = {.length = sizeof(own.address)}, to = {.length = sizeof(to.address)};
        struct sockaddr_in6 from;
        socklen_t length = sizeof(peek);

        if (flags < 0 || getsockname(fd, (struct sockaddr *)&own.address, &own.length) < 0 ||
            getpeername(fd, (struct sockaddr *)&to.address, &to.length) < 0 ||
            !cop_socket_as_ipv6(&own.address, own.length, &from))
                return -errno;
        (void)getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &peek, &length);
        /* Without waiting for ever, and without a signal that tells of it. */
        if (fcntl(fd, F_SETFL, (flags | O_NONBLOCK) & ~O_ASYNC) < 0)
                return -errno;
        int r = disconnect(fd, t);
        if (r == 0)
                r = connect_from(fd, from.sin6_port, &to);
        if (r == 0)
                r = send_all_again(d, fd, f);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &peek, sizeof(peek));
        (void)fcntl(fd, F_SETFL, flags);
        return r;
}

/* Like this one. */
static int new_socket(const struct cop_dump *d, const struct img_file *f)
{
        return cop_dump_new_socket(d, (int)f->arg[IMG_SOCK_FAMILY], SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP, NULL);
}

static int put_back_left(struct cop_dump *d, struct taken *t)
{
        const struct img_file *f = cop_dump_file_at(d, t->file);
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        struct endpoint own = {.length = MIN_OF(f->path.length, (uint32_t)sizeof(own.address))},
                        to = {.length = MIN_OF(f->peer.length, (uint32_t)sizeof(to.address))};
        int on = 1, unused, r = cop_dump_repair_begin(t->fd, &unused);

        memcpy(&own.address, heap + f->path.offset, own.length);
        memcpy(&to.address, heap + f->peer.offset, to.length);
        t->fd = cop_close(t->fd);
        for (int tries = 0; tries < 2; tries++) {
                _cleanup_close_ int fd = new_socket(d, f);
                if (fd < 0)
                        return fd;
                if (tries == 0)
                        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                else /* at the same place for IPv6 */
                        ((struct sockaddr_in *)&own.address)->sin_port = 0;
                r = bind(fd, (const struct sockaddr *)&own.address, own.length) < 0 ? -errno : connect_within(fd, &to);
                if (r == 0)
                        return send_all_again(d, fd, f);
        }
        return r;
}

/* Whether it waits again already.  One that sends nothing does not, where the listener has asked for that (TCP_DEFER_ACCEPT). */
static int await(struct cop_dump *d, uint32_t listener, const struct img_file *f, unsigned count)
{
        int defer = 0;
        socklen_t length = sizeof(defer);
        struct sockaddr_in6 a;

        (void)getsockopt(cop_dump_known_socket(d, listener)->own_fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer, &length);
        if ((defer && f->packets == 0) || !address_of(d, &cop_dump_file_at(d, listener)->path, &a))
                return 0;
        for (int i = 0; i < WAIT_MS; i++, usleep(1000))
                if (waiting_at_port(d, a.sin6_port) >= count)
                        return 0;
        return -ETIMEDOUT;
}

static int put_back(struct cop_dump *d, uint32_t listener, struct taken *t, unsigned *count, struct cop_error *err)
{
        const struct cop_dump_file *known = cop_dump_known_socket(d, listener);

        if (t->file == IMG_NONE) { /* from outside: only a tree that is to be ended comes here, or one that was reset */
                if (d->request->flags & COP_FREEZE_KILL && t->fd >= 0)
                        cop_dump_hold(d, IMG_NONE, TAKE_FD(t->fd));
                t->fd = cop_close(t->fd);
                return 0;
        }
        const struct img_file *f = cop_dump_file_at(d, t->file);
        int r = f->arg[IMG_SOCK_STATE] == IMG_SOCK_LEFT ? put_back_left(d, t) : put_back_client(d, t);
        if (r == 0)
                r = await(d, listener, f, *count + 1);
        t->fd = cop_close(t->fd);
        if (r < 0)
                return cop_error_errno(err, -r, "putting a connection to fd %d of pid %d back that is not accepted yet",
                                       known->fd, d->tree.procs[known->proc].nspid);
        *count += 1;
        return 0;
}

/* ---- all of it ---- */

/* Whether it can be put back, asked of a socket like it. */
static int may_disconnect(struct cop_dump *d, uint32_t listener, struct cop_error *err)
{
        int unused;
        _cleanup_close_ int fd = new_socket(d, cop_dump_file_at(d, listener));
        int r = fd < 0 ? fd : cop_dump_repair_begin(fd, &unused);

        return r < 0 ? cop_error_errno(err, -r, "entering TCP repair mode") : 0;
}

/* What is taken is put back in any case. */
static int dump_crowd(struct cop_dump *d, const struct cop_tcp_table *table, uint32_t listener, unsigned n,
                      struct cop_error *err)
{
        _cleanup_free_ struct taken *list = calloc(n, sizeof(*list));
        const struct cop_dump_file *known = cop_dump_known_socket(d, listener);
        int backlog = (int)cop_dump_file_at(d, listener)->arg[IMG_SOCK_BACKLOG];
        struct sockaddr_in6 a;
        unsigned taken = 0;
        int r = list && cop_dump_hold_room(d, n) == 0 ? may_disconnect(d, listener, err)
                                                      : cop_error_errno(err, ENOMEM, "reading a listener's queue");

        r = r < 0 ? r : 1;
        while (r > 0 && taken < n) {
                r = take_one(d, table, listener, &list[taken], err);
                if (list[taken].fd < 0)
                        break;
                if (list[taken].file != IMG_NONE)
                        cop_dump_file_at(d, list[taken].file)->arg[IMG_SOCK_BACKLOG] = taken;
                taken++;
        }
        /* There is room for those that come back, whoever comes in between. */
        (void)listen(known->own_fd, backlog + (int)n + 64);
        unsigned count = address_of(d, &cop_dump_file_at(d, listener)->path, &a) ? waiting_at_port(d, a.sin6_port) : 0;
        for (unsigned i = 0; i < taken; i++) {
                int back = put_back(d, listener, &list[i], &count, r < 0 ? NULL : err);
                r = r < 0 ? r : back;
        }
        (void)listen(known->own_fd, backlog);
        return r < 0 ? r : 0;
}

/* Those that cannot be looked at before the last moment. */
static void mark_clients(struct cop_dump *d, const struct cop_tcp_table *t, uint32_t listener)
{
        struct sockaddr_in6 a;

        if (!address_of(d, &cop_dump_file_at(d, listener)->path, &a))
                return;
        for (size_t i = 0; i < t->count; i++) {
                const struct cop_tcp_info *e = &t->list[i];
                uint32_t client = e->ino == 0 && e->local.sin6_port == a.sin6_port
                                          ? find_client(d, &e->local, &e->remote)
                                          : IMG_NONE;
                if (client == IMG_NONE)
                        continue;
                cop_dump_file_at(d, client)->arg[IMG_SOCK_STATE] = IMG_SOCK_WAITING;
                cop_dump_file_at(d, client)->arg[IMG_SOCK_LISTENER] = listener;
        }
}

static int dump_listener(struct cop_dump *d, uint32_t index, bool last, struct cop_error *err)
{
        const struct img_file *f = cop_dump_file_at(d, index);
        const struct cop_dump_file *known = cop_dump_known_socket(d, index);
        struct cop_tcp_table t = {0};

        if (!is_stream(f) || f->arg[IMG_SOCK_STATE] != IMG_SOCK_LISTENING || !known)
                return 0;
        unsigned count = waiting_at(known->own_fd);
        if (count == 0)
                return 0;
        int r = cop_tcp_table_collect(d->net_diag_fd, &t, err);
        struct crowd c = look_at(d, &t, index, count);
        if (r == 0 && (c.sent || c.left)) {
                bool end = d->request->flags & COP_FREEZE_KILL;
                if (last || !c.outside)
                        r = dump_crowd(d, &t, index, c.count, err);
                else if (end) {
                        mark_clients(d, &t, index);
                        d->accept = true;
                } else if (c.sent)
                        r = cop_not_freezable(d, known->proc, err,
                                              "listens (fd %d) where a connection from outside waits beside those in "
                                              "which data waits, "
                                              "which only a suspend can keep",
                                              known->fd);
        }
        cop_tcp_table_done(&t);
        return r;
}

int cop_dump_tcp_waiting(struct cop_dump *d, bool last, struct cop_error *err)
{
        int r = 0;

        for (uint32_t i = 0, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++)
                r = dump_listener(d, i, last, err);
        return r;
}
