/* Sockets, rebuilt in the first process; see dump_sock.c for what is known about them.
 *
 * Order: listeners and idle ones (they need nobody); connected pairs, through their listener where it lives on, so that
 * names and ports come out right, and closed ones; options; datagrams that came from others than the peer; datagram sockets'
 * connections, and those not accepted yet; queued data; shut-down directions.
 */
#include <fcntl.h>
#include <linux/netlink.h>
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
                             f->kind == IMG_FILE_UNIX     ? "unix"
                             : f->kind == IMG_FILE_INET   ? "network"
                             : f->kind == IMG_FILE_PACKET ? "packet"
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

/* A new network namespace lets nobody have an ICMP echo socket; for a moment it lets us. */
static int new_echo(const struct img_file *f)
{
        static const char only_root[] = "0 0";
        char before[64];
        _cleanup_close_ int range = open("/proc/sys/net/ipv4/ping_group_range", O_RDWR | O_CLOEXEC);
        ssize_t n = range < 0 ? -1 : read(range, before, sizeof(before));

        if (n <= 0 || pwrite(range, only_root, strlen(only_root), 0) < 0)
                return -1;
        int fd = socket((int)f->arg[IMG_SOCK_FAMILY], SOCK_DGRAM | SOCK_CLOEXEC, (int)f->arg[IMG_SOCK_PROTOCOL]);
        int saved = errno;
        (void)!pwrite(range, before, (size_t)n, 0);
        errno = saved;
        return fd;
}

int cop_socket_new(const struct img_file *f)
{
        int fd = socket((int)f->arg[IMG_SOCK_FAMILY], (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC,
                        (int)f->arg[IMG_SOCK_PROTOCOL]);

        return fd < 0 && errno == EACCES && cop_socket_is_echo(f) ? new_echo(f) : fd;
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

bool cop_socket_is_here(const struct cop_restore *r, const struct img_file *like, const struct img_ref *address)
{
        struct sockaddr_in6 a = {0};

        memcpy(&a, cop_socket_address(r, address), MIN_OF((size_t)address->length, sizeof(a)));
        a.sin6_port = 0; /* at the same place for IPv4 */
        if (a.sin6_family == AF_INET &&
            ntohl(((const struct sockaddr_in *)(const void *)&a)->sin_addr.s_addr) >> 24 == 127)
                return true;
        _cleanup_close_ int fd = cop_socket_new(like);
        return fd >= 0 && bind(fd, (const struct sockaddr *)&a, address->length) == 0;
}

/* Of several sockets at one port one may have taken its consent (SO_REUSEPORT) back since: all have it until options are set. */
static void share_port(struct cop_restore *r, const struct img_file *f, int fd)
{
        int on = 1;

        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *g = RESTORE_FILE(r, i);
                if (g->kind == IMG_FILE_INET && r->objects[i] >= 0 && g->arg[IMG_SOCK_TYPE] == f->arg[IMG_SOCK_TYPE] &&
                    cop_socket_named(g) &&
                    port_of(cop_socket_address(r, &g->path)) == port_of(cop_socket_address(r, &f->path)))
                        setsockopt(r->objects[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        }
}

/* An address that is not here: the socket has been bound to it by IP_FREEBIND, or it has gone since. */
static int bind_to_absent(const struct sockaddr *address, socklen_t length, int fd)
{
        int on = 1, off = 0, was = 0;
        socklen_t size = sizeof(was);

        (void)getsockopt(fd, IPPROTO_IP, IP_FREEBIND, &was, &size);
        (void)setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
        int ret = bind(fd, address, length) < 0 ? -errno : 0;
        if (!was)
                (void)setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &off, sizeof(off));
        return ret;
}

static int bind_inet(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct sockaddr *a = cop_socket_address(r, &f->path);
        int on = 1;

        if (!cop_socket_named(f) || port_of(a) == 0)
                return 0;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        cop_socket_set_before_bind(r, f, fd);
        int ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        if (ret == -EADDRNOTAVAIL && cop_socket_single(f))
                ret = bind_to_absent(a, f->path.length, fd);
        if (ret == -EADDRINUSE) {
                share_port(r, f, fd);
                ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        }
        return ret;
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

static int restore_netlink(struct cop_restore *r, const struct img_file *f, int fd)
{
        struct sockaddr_nl own = {0};

        memcpy(&own, cop_socket_address(r, &f->path), MIN_OF((size_t)f->path.length, sizeof(own)));
        /* To bind without either would give it a number. */
        if ((own.nl_pid || own.nl_groups) && bind(fd, (const struct sockaddr *)&own, sizeof(own)) < 0)
                return -errno;
        return f->peer.length && connect(fd, cop_socket_address(r, &f->peer), f->peer.length) < 0 ? -errno : 0;
}

static int restore_idle(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = f->kind == IMG_FILE_PACKET ? cop_socket_new_packet(r, f) : cop_socket_new(f), ret;

        if (keep(r, index, fd) < 0)
                return cop_socket_complain(err, f, "socket");
        fd = r->objects[index];
        if (f->kind == IMG_FILE_PACKET)
                return 0;
        if (f->kind == IMG_FILE_NETLINK)
                ret = restore_netlink(r, f, fd);
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
        if (ret == -EADDRINUSE && f->kind == IMG_FILE_INET) {
                share_port(r, f, fd);
                ret = start_listening(&l);
        }
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

static int connect_nowhere(int fd)
{
        struct sockaddr nowhere = {.sa_family = AF_UNSPEC};

        return connect(fd, &nowhere, sizeof(nowhere));
}

/* Who has no name can be connected to only by being made with it, and be sent to by nobody else. */
static uint32_t connected_mate(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint64_t peer = f->arg[IMG_SOCK_PEER];
        const struct img_file *g = peer < r->image->count[IMG_FILES] && peer != index ? RESTORE_FILE(r, peer) : NULL;

        if (!g || !cop_socket_unix_datagram(f) || !cop_socket_unix_datagram(g))
                return IMG_NONE;
        bool mates = cop_socket_nameless(g) ||
                     (cop_socket_nameless(f) && (g->arg[IMG_SOCK_PEER] == index || f->packets > 0));
        return mates ? (uint32_t)peer : IMG_NONE;
}

uint32_t cop_socket_mate(const struct cop_restore *r, uint32_t index)
{
        uint32_t mate = connected_mate(r, index);

        for (uint32_t i = 0; mate == IMG_NONE && i < r->image->count[IMG_FILES]; i++)
                if (connected_mate(r, i) == index)
                        mate = i;
        return mate;
}

/* Datagram sockets: connect when the peer's address is known. */
static int connect_datagram(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint64_t peer = f->arg[IMG_SOCK_PEER];

        if (f->kind == IMG_FILE_INET) {
                if (f->peer.length > sizeof(sa_family_t))
                        (void)connect(r->objects[index], cop_socket_address(r, &f->peer), f->peer.length);
                return 0;
        }
        uint32_t mate = cop_socket_mate(r, index);
        if (peer >= r->image->count[IMG_FILES]) {
                if (mate == IMG_NONE && cop_socket_nameless(f) && f->packets > 0)
                        return 0; /* connecting would drop what is queued */
                if (f->arg[IMG_SOCK_ERROR])
                        return connect_to_nobody(r, index, err);
                return mate != IMG_NONE && connect_nowhere(r->objects[index]) < 0
                               ? cop_socket_complain(err, f, "disconnecting")
                               : 0;
        }
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
                if (p.type == SOCK_DGRAM && !f->arg[IMG_SOCK_ERROR] && connect_nowhere(pair[0]) < 0)
                        return cop_socket_complain(err, f, "disconnecting");
                r->last_ends[a] = pair[1];
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
        ret = c->kind == IMG_FILE_UNIX ? bind_unix(r, c, client->fd) : bind_inet(r, c, client->fd);
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
        const struct img_credentials *who = server                     ? maker_of(r, server->file)
                                            : tells_sent(c)            ? maker_of(r, c)
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
        if (ret == 0 && (keep(r, client, c.fd) < 0 || (server != IMG_NONE && keep(r, server, s.fd) < 0)))
                return cop_socket_complain(err, c.file, "keeping a connection");
        return ret;
}

/* By way of a listener that is there for a moment. */
static int connect_alone(struct cop_restore *r, struct end *client, struct end *server, struct cop_error *err)
{
        _cleanup_close_ int listener = cop_socket_new(server->file);
        int ret = listener < 0 ? -errno : bind_inet(r, server->file, listener);

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
        if (ret == 0 && (keep(r, a, ends[0].fd) < 0 || keep(r, b, ends[1].fd) < 0))
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

static uint32_t find_listener(const struct cop_restore *r, const struct img_ref *address)
{
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind == IMG_FILE_INET && cop_socket_state(f) == IMG_SOCK_LISTENING && r->objects[i] >= 0 &&
                    cop_socket_named(f) &&
                    port_of(cop_socket_address(r, &f->path)) == port_of(cop_socket_address(r, address)))
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
                return make_pair(r, index, IMG_NONE, err);
        memcpy(peer.arg, f->arg, sizeof(peer.arg[0]) * (IMG_SOCK_PROTOCOL + 1));
        int ret = refused ? -ECONNREFUSED : connect_as_before(r, &own, &other);
        if (ret < 0) {
                cop_close(own.fd);
                cop_close(other.fd);
                own.fd = other.fd = -EBADF;
                ret = connect_anywhere(f, &own, &other);
        }
        if (ret == 0)
                ret = keep(r, index, own.fd);
        if (ret < 0 || refused) {
                errno = -ret;
                cop_close(other.fd);
                return ret < 0 ? cop_socket_complain(err, f, "a closed connection") : 0;
        }
        (void)cop_socket_send_all(r, f, other.fd);
        await_queue(r, f, r->objects[index]);
        if (f->arg[IMG_SOCK_ERROR])
                (void)setsockopt(other.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        cop_close(other.fd);
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

        return connect_pair(r, index, IMG_NONE, r->objects[listener], to, err);
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
        (void)fcntl(fd, F_SETFL, (int)f->flags & O_NONBLOCK);
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
        PASS_ALL_SENT,
        PASSES
};

static int restore_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const uint32_t both[] = {a, b};
        int ret = make_pair(r, a, b, err);

        for (size_t i = 0; i < ELEMENTSOF(both) && ret == 0; i++) {
                const struct img_file *f = RESTORE_FILE(r, both[i]);
                errno = -bind_unix(r, f, r->objects[both[i]]);
                if (errno)
                        ret = cop_socket_complain(err, f, "binding its address");
        }
        return ret;
}

static int restore_single(struct cop_restore *r, uint32_t i, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, i);
        uint32_t mate = cop_socket_unix_datagram(f) ? cop_socket_mate(r, i) : IMG_NONE;

        if (mate != IMG_NONE && r->objects[mate] < 0)
                return restore_pair(r, i, mate, err);
        if (mate == IMG_NONE && cop_socket_nameless(f) && f->packets > 0)
                return make_pair(r, i, IMG_NONE, err);
        return restore_idle(r, i, err);
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
        bool raw = f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_TYPE] == SOCK_RAW;
        bool datagram =
                raw || (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && (f->kind == IMG_FILE_UNIX || f->kind == IMG_FILE_INET));

        if (!cop_is_socket(f))
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
        case PASS_FINISH:
                finish_socket(r, i);
                return 0;
        default:
                if (raw)
                        cop_socket_drop_received(r->objects[i]); /* of what was sent here */
                return f->kind == IMG_FILE_PACKET ? cop_socket_finish_packet(r, f, r->objects[i], err) : 0;
        }
}

static int run_passes(struct cop_restore *r, struct cop_error *err)
{
        for (int which = 0; which < PASSES; which++)
                for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                        int ret = pass(r, which, i, err);
                        if (ret < 0)
                                return ret;
                }
        return 0;
}

int cop_restore_sockets(struct cop_restore *r, struct cop_error *err)
{
        uint32_t n = r->image->count[IMG_FILES];
        int ret;

        r->last_ends = malloc((n + 1) * sizeof(int));
        if (!r->last_ends)
                return cop_error_errno(err, ENOMEM, "rebuilding sockets");
        for (uint32_t i = 0; i < n; i++)
                r->last_ends[i] = -EBADF;
        ret = run_passes(r, err);
        for (uint32_t i = 0; i < n; i++)
                cop_close(r->last_ends[i]);
        free(r->last_ends);
        r->last_ends = NULL;
        return ret;
}
