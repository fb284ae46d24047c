/* Sockets, rebuilt in the first process; see dump_sock.c for what is known about them.
 *
 * Order: listeners and idle ones (they need nobody); connected pairs, through their listener where it lives on, so that
 * names and ports come out right, and closed ones; options; datagrams that came from others than the peer; datagram sockets'
 * connections, and those not accepted yet; queued data; shut-down directions.
 */
#include <fcntl.h>
#include <linux/socket.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "freezer/restore_sock.h"

#define REACHED_MS 5000

int cop_socket_complain(struct cop_error *err, const struct img_file *f, const char *what)
{
        return cop_error_set(err, errno, COP_ERR_start_failed, "rebuilding a %s socket: %s: %s",
                             f->kind == IMG_FILE_UNIX   ? "unix"
                             : f->kind == IMG_FILE_INET ? "network"
                                                        : "netlink",
                             what, strerror(errno));
}

/* Keeps a new descriptor as the object of a file. */
static int keep(struct cop_restore *r, uint32_t index, int fd)
{
        if (fd < 0)
                return -errno;
        r->objects[index] = fd < r->base_fd ? cop_restore_move_high(r, fd) : fd;
        return r->objects[index] < 0 ? r->objects[index] : 0;
}

int cop_socket_new(const struct img_file *f)
{
        return socket((int)f->arg[IMG_SOCK_FAMILY], (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC,
                      (int)f->arg[IMG_SOCK_PROTOCOL]);
}

/* ---- names ---- */

int cop_socket_file(int fd)
{
        int file_fd = ioctl(fd, SIOCUNIXFILE);

        return file_fd < 0 ? -errno : file_fd;
}

void cop_socket_file_address(int file_fd, struct sockaddr_un *ret)
{
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d", file_fd);
}

static int connect_unix(int fd, int to, const struct sockaddr *address, socklen_t length)
{
        struct sockaddr_un through;
        _cleanup_close_ int file_fd = cop_socket_file(to);

        if (file_fd >= 0) {
                cop_socket_file_address(file_fd, &through);
                address = (const void *)&through;
                length = sizeof(through);
        }
        return connect(fd, address, length) < 0 ? -errno : 0;
}

/* A socket whose file was renamed or removed: its address belongs to somebody else by now, or to nobody. */
static int bind_elsewhere(struct cop_restore *r, const struct img_file *f, int fd, const char *path)
{
        const struct sockaddr *a = cop_socket_address(r, &f->path);
        const char *place = cop_restore_string(r, &f->place);
        struct sockaddr_un other = {.sun_family = AF_UNIX};
        char aside[4352], random[17];

        snprintf(aside, sizeof(aside), "%s.%s", path, cop_id_hex(random, 8));
        bool moved = rename(path, aside) == 0;
        int ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        if (ret == -ENOENT) { /* its folder is gone, too */
                snprintf(other.sun_path, sizeof(other.sun_path), "/tmp/.%s", random);
                ret = bind(fd, (const struct sockaddr *)&other, sizeof(other)) < 0 ? -errno : 0;
                path = other.sun_path;
        }
        if (ret == 0 && (!f->arg[IMG_SOCK_MODE] || rename(path, place) < 0))
                unlink(path);
        if (moved && rename(aside, path) < 0 && ret == 0)
                ret = -errno;
        return ret;
}

static int bind_here(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct sockaddr_un *a = (const void *)cop_socket_address(r, &f->path);
        bool file = a->sun_path[0] != '\0';
        char path[sizeof(a->sun_path) + 1] = {0};

        memcpy(path, a->sun_path, MIN_OF(f->path.length - offsetof(struct sockaddr_un, sun_path), sizeof(a->sun_path)));
        if (file && path[0] != '/' && f->arg[IMG_SOCK_CWD] < r->image->count[IMG_PROCS] &&
            strcmp(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->root), "/") == 0)
                (void)!chdir(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->cwd));
        const char *there = f->place.length ? cop_restore_string(r, &f->place) : path;
        if (file && (!f->arg[IMG_SOCK_MODE] || f->place.length)) {
                int ret = bind_elsewhere(r, f, fd, path);
                if (ret < 0 || !f->arg[IMG_SOCK_MODE])
                        return ret;
        } else {
                if (file)
                        unlink(path); /* the old socket's own file */
                if (bind(fd, (const struct sockaddr *)a, f->path.length) < 0)
                        return -errno;
        }
        return file && (chmod(there, (mode_t)f->arg[IMG_SOCK_MODE] & 07777) < 0 ||
                        lchown(there, (uid_t)f->arg[IMG_SOCK_OWNER], (gid_t)(f->arg[IMG_SOCK_OWNER] >> 32)) < 0)
                       ? -errno
                       : 0;
}

/* A unix address means what its owner sees: behind a chroot a child goes there to bind. */
static int bind_unix(struct cop_restore *r, const struct img_file *f, int fd)
{
        uint64_t owner = f->arg[IMG_SOCK_CWD];
        const struct img_proc *p = owner < r->image->count[IMG_PROCS] ? RESTORE_PROC(r, owner) : NULL;
        const char *root = p ? cop_restore_string(r, &p->root) : "/";
        int status = 0;

        if (!cop_socket_named(f))
                return 0;
        if (strcmp(root, "/") == 0)
                return bind_here(r, f, fd);
        pid_t pid = cop_restore_fork_helper(r);
        if (pid == 0) {
                (void)!chdir(cop_restore_string(r, &p->cwd));
                if (chroot(root) < 0)
                        _exit(errno);
                _exit(-bind_here(r, f, fd));
        }
        if (pid < 0 || waitpid(pid, &status, __WALL) < 0)
                return -errno;
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static uint16_t port_of(const struct sockaddr *a)
{
        return ((const struct sockaddr_in *)(const void *)a)->sin_port; /* at the same place for IPv6 */
}

static int bind_inet(struct cop_restore *r, const struct img_file *f, int fd)
{
        int on = 1;

        if (!cop_socket_named(f) || port_of(cop_socket_address(r, &f->path)) == 0)
                return 0;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        cop_socket_set_before_bind(r, f, fd);
        return bind(fd, cop_socket_address(r, &f->path), f->path.length) < 0 ? -errno : 0;
}

/* Whom SO_PEERCRED names: who made a pair or listened, or, at the accepting end of a connection, who connected. */
static const struct img_credentials *maker_of(const struct cop_restore *r, const struct img_file *f)
{
        return f->kind == IMG_FILE_UNIX ? cop_restore_credentials(r, &f->peer) : NULL;
}

struct listening {
        int fd, backlog;
};

static int start_listening(void *argument)
{
        const struct listening *l = argument;

        return listen(l->fd, l->backlog) < 0 ? -errno : 0;
}

static int restore_idle(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = cop_socket_new(f), ret;

        if (keep(r, index, fd) < 0)
                return cop_socket_complain(err, f, "socket");
        fd = r->objects[index];
        if (f->kind == IMG_FILE_NETLINK)
                ret = cop_socket_named(f) ? bind(fd, cop_socket_address(r, &f->path), f->path.length) : 0;
        else
                ret = f->kind == IMG_FILE_UNIX ? bind_unix(r, f, fd) : bind_inet(r, f, fd);
        if (ret < 0) {
                errno = ret == -1 ? errno : -ret;
                return cop_socket_complain(err, f, "binding its address");
        }
        if (cop_socket_state(f) != IMG_SOCK_LISTENING)
                return 0;
        struct listening l = {.fd = fd, .backlog = (int)f->arg[IMG_SOCK_BACKLOG]};
        ret = cop_restore_as(r, maker_of(r, f), start_listening, &l);
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, f, "listening");
        }
        return 0;
}

/* ---- pairs ---- */

/* The next message finds out that its peer is gone. */
static int connect_to_nobody(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        socklen_t length = sizeof(a);
        _cleanup_close_ int peer = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        /* It gives itself a name. */
        if (peer < 0 || bind(peer, (const struct sockaddr *)&a, sizeof(sa_family_t)) < 0 ||
            getsockname(peer, (struct sockaddr *)&a, &length) < 0 ||
            connect(r->objects[index], (const struct sockaddr *)&a, length) < 0)
                return cop_socket_complain(err, RESTORE_FILE(r, index), "connecting");
        return 0;
}

/* Datagram sockets: connect when the peer's address is known, a pair when both point at each other without names. */
static int connect_datagram(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint64_t peer = f->arg[IMG_SOCK_PEER];

        if (f->kind == IMG_FILE_INET) {
                if (f->peer.length > sizeof(sa_family_t))
                        (void)connect(r->objects[index], cop_socket_address(r, &f->peer), f->peer.length);
                return 0;
        }
        if (peer >= r->image->count[IMG_FILES])
                return f->arg[IMG_SOCK_ERROR] ? connect_to_nobody(r, index, err) : 0;
        const struct img_ref *to = &RESTORE_FILE(r, peer)->path;
        if (to->length <= sizeof(sa_family_t))
                return 0;
        int ret = connect_unix(r->objects[index], r->objects[peer], cop_socket_address(r, to), to->length);
        errno = -ret;
        return ret < 0 ? cop_socket_complain(err, f, "connecting") : 0;
}

struct pairing {
        int type, pair[2];
};

static int new_pair(void *argument)
{
        struct pairing *p = argument;

        return socketpair(AF_UNIX, p->type | SOCK_CLOEXEC, 0, p->pair) < 0 ? -errno : 0;
}

static int make_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, a);
        struct pairing p = {.type = (int)f->arg[IMG_SOCK_TYPE]};
        const int *pair = p.pair;
        int ret = cop_restore_as(r, maker_of(r, f), new_pair, &p);

        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, f, "socketpair");
        }
        if (b == IMG_NONE) {
                cop_socket_send_all(r, f, pair[1]);
                close(pair[1]);
                return keep(r, a, pair[0]) < 0 ? cop_socket_complain(err, f, "socketpair") : 0;
        }
        /* First move, then keep: a low number must not be taken twice. */
        if (keep(r, a, pair[0]) < 0 || keep(r, b, pair[1]) < 0)
                return cop_socket_complain(err, f, "socketpair");
        return 0;
}

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
                return connect_unix(c->fd, c->listener, cop_socket_address(c->restore, c->to), c->to->length);
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
                    port_of(cop_socket_address(r, &f->path)) == port_of(cop_socket_address(r, to)))
                        list[n++] = (struct pollfd){.fd = r->objects[i], .events = POLLIN};
        }
        if (n < 2 || poll(list, n, REACHED_MS) <= 0)
                return listener;
        for (size_t i = 0; i < n; i++)
                if (list[i].revents & POLLIN)
                        return list[i].fd;
        return listener;
}

/* A connection between client and server, accepted from `listener`. */
static int connect_through(struct cop_restore *r, uint32_t client, uint32_t server, int listener,
                           const struct img_ref *to, struct cop_error *err)
{
        const struct img_file *c = RESTORE_FILE(r, client);
        int fd = cop_socket_new(c), flags, ret;

        if (keep(r, client, fd) < 0)
                return cop_socket_complain(err, c, "socket");
        fd = r->objects[client];
        ret = c->kind == IMG_FILE_UNIX ? bind_unix(r, c, fd) : bind_inet(r, c, fd);
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, c, "binding its address");
        }
        struct connecting call = {.restore = r, .client = c, .to = to, .fd = fd, .listener = listener};
        struct img_credentials holder;
        const struct img_credentials *who = server != IMG_NONE         ? maker_of(r, RESTORE_FILE(r, server))
                                            : tells_sent(c)            ? maker_of(r, c)
                                            : holder_of(r, c, &holder) ? &holder
                                                                       : NULL;
        ret = cop_restore_as(r, who, connect_client, &call);
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, c, "connecting to the listener");
        }
        if (server == IMG_NONE)
                return 0;
        if (c->kind == IMG_FILE_INET)
                listener = reached_listener(r, to, listener);
        flags = fcntl(listener, F_GETFL);
        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags & ~O_NONBLOCK);
        int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        int saved = errno;
        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags);
        errno = saved;
        return keep(r, server, accepted) < 0 ? cop_socket_complain(err, c, "accepting") : 0;
}

static int pair_inet(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *fa = RESTORE_FILE(r, a), *fb = RESTORE_FILE(r, b);
        uint32_t la = (uint32_t)fa->arg[IMG_SOCK_LISTENER], lb = (uint32_t)fb->arg[IMG_SOCK_LISTENER];

        if (la < r->image->count[IMG_FILES])
                return connect_through(r, b, a, r->objects[la], &fa->path, err);
        if (lb < r->image->count[IMG_FILES])
                return connect_through(r, a, b, r->objects[lb], &fb->path, err);
        /* The listener is gone: one for a moment. */
        _cleanup_close_ int listener = cop_socket_new(fb);
        int ret = listener < 0 ? -errno : bind_inet(r, fb, listener);
        if (ret < 0 || listen(listener, 1) < 0) {
                errno = ret < 0 ? -ret : errno;
                return cop_socket_complain(err, fb, "a listener for its peer");
        }
        return connect_through(r, a, b, listener, &fb->path, err);
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
                return connect_through(r, b, a, r->objects[la], &fa->path, err);
        if (is_reachable(r, lb))
                return connect_through(r, a, b, r->objects[lb], &fb->path, err);
        return make_pair(r, a, b, err);
}

/* TCP that receives no more and has sent its end answers late segments with a reset: what was queued must have come. */
static void await_queue(struct cop_restore *r, const struct img_file *f, int fd)
{
        size_t total = 0;

        for (uint32_t i = 0; i < f->packets; i++)
                total += IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i)->data.length;
        for (int i = 0, queued = 0; i < 2000; i++, usleep(500))
                if (ioctl(fd, SIOCINQ, &queued) < 0 || (size_t)queued >= total)
                        return;
}

/* An end whose other end is closed: for TCP a connection to a listener of ours, dropped at once. */
static int restore_closed(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        union {
                struct sockaddr any;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
        } to = {.in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
        const struct linger reset = {.l_onoff = 1};
        socklen_t length = sizeof(to);

        if (f->kind == IMG_FILE_UNIX)
                return make_pair(r, index, IMG_NONE, err);
        bool refused = f->arg[IMG_SOCK_ERROR] == ECONNREFUSED;
        if (f->arg[IMG_SOCK_FAMILY] == AF_INET6)
                to.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        _cleanup_close_ int listener = cop_socket_new(f);
        _cleanup_close_ int peer = -EBADF;
        if (listener < 0 ||
            bind(listener, &to.any, f->arg[IMG_SOCK_FAMILY] == AF_INET6 ? sizeof(to.in6) : sizeof(to.in)) < 0 ||
            (!refused && listen(listener, 1) < 0) || getsockname(listener, &to.any, &length) < 0 ||
            keep(r, index, cop_socket_new(f)) < 0 ||
            (refused && fcntl(r->objects[index], F_SETFL, O_NONBLOCK) < 0) || /* the answer must not be told to us */
            (connect(r->objects[index], &to.any, length) < 0 && !(refused && errno == EINPROGRESS)))
                return cop_socket_complain(err, f, "a closed connection");
        if (refused)
                return 0;
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
                return cop_socket_complain(err, f, "a closed connection");
        cop_socket_send_all(r, f, peer);
        await_queue(r, f, r->objects[index]);
        if (f->arg[IMG_SOCK_ERROR] && setsockopt(peer, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) < 0)
                return cop_socket_complain(err, f, "a reset connection");
        return 0;
}

static int restore_connection(struct cop_restore *r, uint32_t index, struct cop_error *err)
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

        /* The listener may be of IPv6, and the client of IPv4. */
        return connect_through(r, index, IMG_NONE, r->objects[listener],
                               f->kind == IMG_FILE_INET && tells_sent(f) ? &f->peer : to, err);
}

/* All that wait at a listener, in their order. */
static int fill_listener(struct cop_restore *r, uint32_t listener, struct cop_error *err)
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

/* ---- queues and the rest ---- */

static void finish_socket(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = r->objects[index];

        cop_socket_set_last(r, f, fd);
        if (f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_SHUTDOWN] == 3)
                await_queue(r, f, fd);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 2)
                shutdown(fd, SHUT_WR);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 1)
                shutdown(fd, SHUT_RD);
        if (cop_socket_state(f) == IMG_SOCK_CONNECTING && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
                (void)connect(fd, cop_socket_address(r, &f->peer),
                              f->peer.length); /* how it ends is the tree's affair */
        (void)fcntl(fd, F_SETFL, (int)f->flags & COP_FLAGS_SET);
        if (cop_socket_state(f) == IMG_SOCK_LEFT)
                r->objects[index] = cop_close(fd);
}

/* In this order, each for all sockets; see the top. */
enum {
        PASS_IDLE,
        PASS_CONNECTED,
        PASS_OPTIONS,
        PASS_STRANGERS,
        PASS_DATAGRAMS,
        PASS_PENDING,
        PASS_LATE_OPTIONS,
        PASS_QUEUES,
        PASS_FINISH,
        PASSES
};

static int restore_single(struct cop_restore *r, uint32_t i, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, i);
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];
        bool pair = f->kind == IMG_FILE_UNIX && f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && !cop_socket_named(f) &&
                    peer < r->image->count[IMG_FILES] && !cop_socket_named(RESTORE_FILE(r, peer)) &&
                    RESTORE_FILE(r, peer)->arg[IMG_SOCK_PEER] == i;

        return pair ? make_pair(r, i, peer, err) : restore_idle(r, i, err);
}

/* At a listener that is there; without one it is a closed connection. */
static bool waits(const struct cop_restore *r, const struct img_file *f)
{
        uint64_t listener = f->arg[IMG_SOCK_LISTENER];

        return cop_socket_waits(cop_socket_state(f)) && listener < r->image->count[IMG_FILES] &&
               cop_socket_state(RESTORE_FILE(r, listener)) == IMG_SOCK_LISTENING;
}

static int pass(struct cop_restore *r, int which, uint32_t i, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, i);
        bool single = cop_socket_single(f);
        bool pending = waits(r, f);
        bool datagram = f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && f->kind != IMG_FILE_NETLINK;

        if (f->kind != IMG_FILE_UNIX && f->kind != IMG_FILE_INET && f->kind != IMG_FILE_NETLINK)
                return 0;
        switch (which) {
        case PASS_IDLE:
                return single && r->objects[i] < 0 ? restore_single(r, i, err) : 0;
        case PASS_CONNECTED:
                return single || pending || r->objects[i] >= 0 ? 0 : restore_connection(r, i, err);
        case PASS_OPTIONS:
                if (!pending)
                        cop_socket_set_options(r, f, r->objects[i]);
                return 0;
        case PASS_STRANGERS:
                return cop_socket_queue_first(r, i) ? cop_socket_restore_queue(r, i, err) : 0;
        case PASS_DATAGRAMS:
                return datagram ? connect_datagram(r, i, err) : 0;
        case PASS_PENDING:
                return cop_socket_state(f) == IMG_SOCK_LISTENING ? fill_listener(r, i, err) : 0;
        case PASS_LATE_OPTIONS:
                if (pending)
                        cop_socket_set_options(r, f, r->objects[i]);
                return 0;
        case PASS_QUEUES:
                return cop_socket_queue_first(r, i) ? 0 : cop_socket_restore_queue(r, i, err);
        default:
                finish_socket(r, i);
                return 0;
        }
}

int cop_restore_sockets(struct cop_restore *r, struct cop_error *err)
{
        for (int which = 0; which < PASSES; which++)
                for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                        int ret = pass(r, which, i, err);
                        if (ret < 0)
                                return ret;
                }
        return 0;
}
