/* Connections, made anew: through the listener that one end was accepted from, or one for a moment; those of which one end is gone; those
 * that are not accepted yet. */
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore_sock.h"

#define REACHED_MS 5000

struct connecting {
        struct cop_restore *restore;
        const struct img_file *client;
        const struct img_ref *to;
        int fd, listener;
};

static int connect_client(void *argument)
{
        const struct connecting *c = argument;

        if (c->client->kind == IMG_FILE_UNIX)
                return cop_socket_connect_unix(c->fd, c->listener, cop_socket_address(c->restore, c->to),
                                               c->to->length);
        return connect(c->fd, cop_socket_address(c->restore, c->to), c->to->length) < 0 ? -errno : 0;
}

static bool tells_sent(const struct img_file *f)
{
        return cop_socket_state(f) == IMG_SOCK_WAITING || cop_socket_state(f) == IMG_SOCK_LEFT;
}

static bool waits_at(const struct img_file *f, uint32_t listener)
{
        return (f->kind == IMG_FILE_UNIX || f->kind == IMG_FILE_INET) && cop_socket_waits(cop_socket_state(f)) &&
               f->arg[IMG_SOCK_LISTENER] == listener;
}

/* Whom the accepting end will name, when it is not there yet: the process that has the client. */
static bool holder_of(const struct cop_restore *r, const struct img_file *f, struct img_credentials *ret)
{
        uint64_t i = f->arg[IMG_SOCK_CWD];
        const struct img_proc *p = i < r->image->count[IMG_PROCS] ? RESTORE_PROC(r, i) : NULL;

        if (f->kind != IMG_FILE_UNIX || !p || p->threads == 0)
                return false;
        const struct img_creds *c = &RESTORE_THREAD(r, p->first_thread)->creds;
        *ret = (struct img_credentials){.pid = p->pid, .uid = c->uid[1], .gid = c->gid[1]};
        return true;
}

/* Of several listeners at one port (SO_REUSEPORT) the kernel has chosen one. */
static int reached_listener(const struct cop_restore *r, const struct img_ref *to, int listener)
{
        size_t n = 0, max = r->image->count[IMG_FILES];
        _cleanup_free_ struct pollfd *list = calloc(max, sizeof(*list));

        for (uint32_t i = 0; i < max && list; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind == IMG_FILE_INET && cop_socket_state(f) == IMG_SOCK_LISTENING && r->objects[i] >= 0 &&
                    cop_socket_port(cop_socket_address(r, &f->path)) == cop_socket_port(cop_socket_address(r, to)))
                        list[n++] = (struct pollfd){.fd = r->objects[i], .events = POLLIN};
        }
        if (n < 2 || poll(list, n, REACHED_MS) <= 0)
                return listener;
        for (size_t i = 0; i < n; i++)
                if (list[i].revents & POLLIN)
                        return list[i].fd;
        return listener;
}

/* One of both ends of a connection to be made. */
struct end {
        const struct img_file *file;
        int fd; /* owned until it is kept */
};

static int accept_from(int listener)
{
        int flags = fcntl(listener, F_GETFL);

        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags & ~O_NONBLOCK);
        int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC), saved = errno;
        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags);
        errno = saved;
        return accepted;
}

/* A connection between client and server (NULL: it waits to be accepted) by way of `listener`. */
static int connect_through(struct cop_restore *r, struct end *client, struct end *server, int listener,
                           const struct img_ref *to, struct cop_error *err)
{
        const struct img_file *c = client->file;
        int ret;

        client->fd = cop_socket_new(c);
        if (client->fd < 0)
                return cop_socket_complain(err, c, "socket");
        ret = cop_socket_bind(r, c, client->fd);
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, c, "binding its address");
        }
        if (c->kind == IMG_FILE_INET && c->peer.length > sizeof(sa_family_t))
                to = &c->peer; /* the listener may be of another family */
        if (c->kind == IMG_FILE_INET && !cop_socket_is_here(r, c, to)) {
                errno = EADDRNOTAVAIL; /* nothing may be sent to another machine */
                return cop_socket_complain(err, c, "connecting to the listener");
        }
        struct connecting call = {.restore = r, .client = c, .to = to, .fd = client->fd, .listener = listener};
        struct img_credentials holder;
        const struct img_credentials *who = server                     ? cop_socket_maker(r, server->file)
                                            : tells_sent(c)            ? cop_socket_maker(r, c)
                                            : holder_of(r, c, &holder) ? &holder
                                                                       : NULL;
        ret = cop_restore_as(r, who, connect_client, &call);
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, c, "connecting to the listener");
        }
        if (!server)
                return 0;
        server->fd = accept_from(c->kind == IMG_FILE_INET ? reached_listener(r, to, listener) : listener);
        return server->fd < 0 ? cop_socket_complain(err, c, "accepting") : 0;
}

static int connect_pair(struct cop_restore *r, uint32_t client, uint32_t server, int listener, const struct img_ref *to,
                        struct cop_error *err)
{
        struct end c = {.file = RESTORE_FILE(r, client), .fd = -EBADF}, s = {.fd = -EBADF};

        if (server != IMG_NONE)
                s.file = RESTORE_FILE(r, server);
        int ret = connect_through(r, &c, server == IMG_NONE ? NULL : &s, listener, to, err);
        if (ret == 0 &&
            (cop_socket_keep(r, client, c.fd) < 0 || (server != IMG_NONE && cop_socket_keep(r, server, s.fd) < 0)))
                return cop_socket_complain(err, c.file, "keeping a connection");
        return ret;
}

/* By way of a listener that is there for a moment. */
static int connect_alone(struct cop_restore *r, struct end *client, struct end *server, struct cop_error *err)
{
        _cleanup_close_ int listener = cop_socket_new(server->file);
        int ret = listener < 0 ? -errno : cop_socket_bind(r, server->file, listener);

        if (ret < 0 || listen(listener, 1) < 0) {
                errno = ret < 0 ? -ret : errno;
                return cop_socket_complain(err, server->file, "a listener for its peer");
        }
        return connect_through(r, client, server, listener, &server->file->path, err);
}

static int pair_inet(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        struct end ends[] = {{.file = RESTORE_FILE(r, a), .fd = -EBADF}, {.file = RESTORE_FILE(r, b), .fd = -EBADF}};
        uint32_t la = (uint32_t)ends[0].file->arg[IMG_SOCK_LISTENER],
                 lb = (uint32_t)ends[1].file->arg[IMG_SOCK_LISTENER];

        if (la < r->image->count[IMG_FILES])
                return connect_pair(r, b, a, r->objects[la], &ends[0].file->path, err);
        if (lb < r->image->count[IMG_FILES])
                return connect_pair(r, a, b, r->objects[lb], &ends[1].file->path, err);
        int ret = connect_alone(r, &ends[0], &ends[1], err);
        if (ret == 0 && (cop_socket_keep(r, a, ends[0].fd) < 0 || cop_socket_keep(r, b, ends[1].fd) < 0))
                return cop_socket_complain(err, ends[0].file, "keeping a connection");
        return ret;
}

/* A listener of this index that can be connected to by its name. */
static bool is_reachable(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = index < r->image->count[IMG_FILES] ? RESTORE_FILE(r, index) : NULL;

        return f && cop_socket_named(f);
}

static int pair_unix(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *fa = RESTORE_FILE(r, a), *fb = RESTORE_FILE(r, b);
        uint32_t la = (uint32_t)fa->arg[IMG_SOCK_LISTENER], lb = (uint32_t)fb->arg[IMG_SOCK_LISTENER];

        if (is_reachable(r, la))
                return connect_pair(r, b, a, r->objects[la], &fa->path, err);
        if (is_reachable(r, lb))
                return connect_pair(r, a, b, r->objects[lb], &fb->path, err);
        return cop_socket_make_pair(r, a, b, err);
}

/* TCP that receives no more and has sent its end answers late segments with a reset: what was queued must have come. */
void cop_socket_await_queue(struct cop_restore *r, const struct img_file *f, int fd)
{
        int in_line = cop_socket_option(fd, SO_OOBINLINE), on = 1;
        size_t total = 0;

        for (uint32_t i = 0; i < f->packets; i++)
                total += IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i)->data.length;
        /* Else it is counted up to an urgent byte. */
        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
        for (int i = 0, queued = 0; i < 2000; i++, usleep(500))
                if (ioctl(fd, SIOCINQ, &queued) < 0 || (size_t)queued >= total)
                        break;
        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof(in_line));
}

static uint32_t find_listener(const struct cop_restore *r, const struct img_ref *address)
{
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind == IMG_FILE_INET && cop_socket_state(f) == IMG_SOCK_LISTENING && r->objects[i] >= 0 &&
                    cop_socket_named(f) &&
                    cop_socket_port(cop_socket_address(r, &f->path)) == cop_socket_port(cop_socket_address(r, address)))
                        return i;
        }
        return IMG_NONE;
}

/* With the addresses that it had, where both are of this machine. */
static int connect_as_before(struct cop_restore *r, struct end *own, struct end *other)
{
        const struct img_file *f = own->file;
        uint32_t mine, others;

        if (!cop_socket_named(f) || f->peer.length <= sizeof(sa_family_t) || !cop_socket_is_here(r, f, &f->path) ||
            !cop_socket_is_here(r, f, &f->peer))
                return -EADDRNOTAVAIL;
        mine = find_listener(r, &f->path);
        others = find_listener(r, &f->peer);
        if (others != IMG_NONE)
                return connect_through(r, own, other, r->objects[others], &f->peer, NULL);
        if (mine != IMG_NONE)
                return connect_through(r, other, own, r->objects[mine], &f->path, NULL);
        return connect_alone(r, own, other, NULL);
}

/* Anywhere on this machine. */
static int connect_anywhere(const struct img_file *f, struct end *own, struct end *other)
{
        union {
                struct sockaddr any;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
        } to = {.in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
        socklen_t length = sizeof(to.in);
        bool refused = f->arg[IMG_SOCK_ERROR] == ECONNREFUSED;

        if (f->arg[IMG_SOCK_FAMILY] == AF_INET6) {
                to.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
                length = sizeof(to.in6);
        }
        _cleanup_close_ int listener = cop_socket_new(f);
        own->fd = cop_socket_new(f);
        if (listener < 0 || own->fd < 0 || bind(listener, &to.any, length) < 0 ||
            (!refused && listen(listener, 1) < 0) || getsockname(listener, &to.any, &length) < 0 ||
            (refused && fcntl(own->fd, F_SETFL, O_NONBLOCK) < 0) || /* the answer must not be told to us */
            (connect(own->fd, &to.any, length) < 0 && !(refused && errno == EINPROGRESS)))
                return -errno;
        if (!refused)
                other->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        return !refused && other->fd < 0 ? -errno : 0;
}

/* An end whose other end is closed: for TCP a connection that is dropped at once. */
static int restore_closed(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        struct img_file peer = {.kind = IMG_FILE_INET, .path = f->peer, .peer = f->path};
        struct end own = {.file = f, .fd = -EBADF}, other = {.file = &peer, .fd = -EBADF};
        const struct linger reset = {.l_onoff = 1};
        bool refused = f->arg[IMG_SOCK_ERROR] == ECONNREFUSED;

        if (f->kind == IMG_FILE_UNIX)
                return cop_socket_make_pair(r, index, IMG_NONE, err);
        memcpy(peer.arg, f->arg, sizeof(peer.arg[0]) * (IMG_SOCK_PROTOCOL + 1));
        int ret = refused ? -ECONNREFUSED : connect_as_before(r, &own, &other);
        if (ret < 0) {
                cop_close(own.fd);
                cop_close(other.fd);
                own.fd = other.fd = -EBADF;
                ret = connect_anywhere(f, &own, &other);
        }
        if (ret == 0)
                ret = cop_socket_keep(r, index, own.fd);
        if (ret < 0 || refused) {
                errno = -ret;
                cop_close(other.fd);
                return ret < 0 ? cop_socket_complain(err, f, "a closed connection") : 0;
        }
        (void)cop_socket_send_all(r, f, other.fd);
        cop_socket_await_queue(r, f, r->objects[index]);
        if (f->arg[IMG_SOCK_ERROR])
                (void)setsockopt(other.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        cop_close(other.fd);
        return 0;
}

int cop_socket_connect(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];

        if (cop_socket_state(f) == IMG_SOCK_CLOSED || peer >= r->image->count[IMG_FILES])
                return restore_closed(r, index, err);
        return f->kind == IMG_FILE_UNIX ? pair_unix(r, index, peer, err) : pair_inet(r, index, peer, err);
}

static int restore_pending(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t listener = (uint32_t)f->arg[IMG_SOCK_LISTENER];
        const struct img_ref *to = &RESTORE_FILE(r, listener)->path;

        return connect_pair(r, index, IMG_NONE, r->objects[listener], to, err);
}

/* All that wait at a listener, in their order. */
int cop_socket_fill_listener(struct cop_restore *r, uint32_t listener, struct cop_error *err)
{
        uint32_t n = r->image->count[IMG_FILES], next;
        int ret;

        do {
                next = IMG_NONE;
                for (uint32_t i = 0; i < n; i++) {
                        const struct img_file *f = RESTORE_FILE(r, i);
                        if (r->objects[i] < 0 && waits_at(f, listener) &&
                            (next == IMG_NONE ||
                             f->arg[IMG_SOCK_BACKLOG] < RESTORE_FILE(r, next)->arg[IMG_SOCK_BACKLOG]))
                                next = i;
                }
                ret = next == IMG_NONE ? 0 : restore_pending(r, next, err);
        } while (next != IMG_NONE && ret == 0);
        return ret;
}
