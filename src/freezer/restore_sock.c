/* Sockets, rebuilt in the first process; see dump_sock.c for what is known about them.
 *
 * Order: listeners and idle ones (they need nobody); connected pairs, through their listener where it lives on, so that
 * names and ports come out right; closed ones; pending connections; then queued data, shut-down directions and options.
 */
#include <fcntl.h>
#include <linux/socket.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore.h"
#include "freezer/sockets.h"

static uint64_t state_of(const struct img_file *f)
{
        return f->arg[IMG_SOCK_STATE];
}

static int complain(struct cop_error *err, const struct img_file *f, const char *what)
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

static int new_socket(const struct img_file *f)
{
        return socket((int)f->arg[IMG_SOCK_FAMILY], (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC,
                      (int)f->arg[IMG_SOCK_PROTOCOL]);
}

static bool named(const struct img_file *f)
{
        return f->path.length > sizeof(sa_family_t);
}

static int get_int(int fd, int name)
{
        int value = 0;
        socklen_t length = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, name, &value, &length) < 0 ? 0 : value;
}

static void set_option(int fd, const struct img_sockopt *o)
{
        (void)setsockopt(fd, o->level, o->name, o->value, MIN_OF(o->length, (uint32_t)sizeof(o->value)));
}

/* Holds back what is sent until it is set off. */
static bool is_cork(const struct img_sockopt *o)
{
        return o->level == IPPROTO_TCP && o->name == TCP_CORK;
}

static const struct sockaddr *address_of(const struct cop_restore *r, const struct img_ref *ref)
{
        return cop_image_at(r->image, ref);
}

/* ---- names ---- */

static int bind_here(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct sockaddr_un *a = (const void *)address_of(r, &f->path);
        bool file = a->sun_path[0] != '\0';
        char path[sizeof(a->sun_path) + 1] = {0};

        memcpy(path, a->sun_path, MIN_OF(f->path.length - offsetof(struct sockaddr_un, sun_path), sizeof(a->sun_path)));
        if (file && path[0] != '/' && f->arg[IMG_SOCK_CWD] < r->image->count[IMG_PROCS] &&
            strcmp(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->root), "/") == 0)
                (void)!chdir(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->cwd));
        if (file)
                unlink(path); /* the old socket's own file */
        if (bind(fd, (const struct sockaddr *)a, f->path.length) < 0)
                return -errno;
        if (!file)
                return 0;
        /* A file that had been removed stays until all who connect through it have done so (finish_socket). */
        if (f->arg[IMG_SOCK_MODE] &&
            (chmod(path, (mode_t)f->arg[IMG_SOCK_MODE] & 07777) < 0 ||
             lchown(path, (uid_t)f->arg[IMG_SOCK_OWNER], (gid_t)(f->arg[IMG_SOCK_OWNER] >> 32)) < 0))
                return -errno;
        return 0;
}

/* A unix address means what its owner sees: behind a chroot a child goes there to bind, or to connect when `to` is given. */
static int bind_unix(struct cop_restore *r, const struct img_file *f, int fd, const struct img_ref *to)
{
        uint64_t owner = f->arg[IMG_SOCK_CWD];
        const struct img_proc *p = owner < r->image->count[IMG_PROCS] ? RESTORE_PROC(r, owner) : NULL;
        const char *root = p ? cop_restore_string(r, &p->root) : "/";
        int status = 0;

        if (!to && !named(f))
                return 0;
        if (strcmp(root, "/") == 0) {
                if (!to)
                        return bind_here(r, f, fd);
                if (p)
                        (void)!chdir(cop_restore_string(r, &p->cwd));
                return connect(fd, address_of(r, to), to->length) < 0 ? -errno : 0;
        }
        pid_t pid = fork();
        if (pid == 0) {
                (void)!chdir(cop_restore_string(r, &p->cwd));
                if (chroot(root) < 0)
                        _exit(errno);
                if (to)
                        _exit(connect(fd, address_of(r, to), to->length) < 0 ? errno : 0);
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

        if (!named(f) || port_of(address_of(r, &f->path)) == 0)
                return 0;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        const struct img_sockopt *o = cop_image_at(r->image, &f->data);
        for (size_t i = 0; i < f->data.length / sizeof(*o); i++) /* these must come before bind */
                if ((o[i].level == SOL_SOCKET && (o[i].name == SO_REUSEPORT || o[i].name == SO_BINDTODEVICE)) ||
                    (o[i].level == IPPROTO_IP && (o[i].name == IP_FREEBIND || o[i].name == IP_TRANSPARENT)) ||
                    (o[i].level == IPPROTO_IPV6 && o[i].name == IPV6_V6ONLY))
                        set_option(fd, &o[i]);
        return bind(fd, address_of(r, &f->path), f->path.length) < 0 ? -errno : 0;
}

static int restore_idle(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = new_socket(f), ret;

        if (keep(r, index, fd) < 0)
                return complain(err, f, "socket");
        fd = r->objects[index];
        if (f->kind == IMG_FILE_NETLINK)
                ret = named(f) ? bind(fd, address_of(r, &f->path), f->path.length) : 0;
        else
                ret = f->kind == IMG_FILE_UNIX ? bind_unix(r, f, fd, NULL) : bind_inet(r, f, fd);
        if (ret < 0) {
                errno = ret == -1 ? errno : -ret;
                return complain(err, f, "binding its address");
        }
        if (state_of(f) == IMG_SOCK_LISTENING && listen(fd, (int)f->arg[IMG_SOCK_BACKLOG]) < 0)
                return complain(err, f, "listening");
        return 0;
}

/* ---- queued data ---- */

static int send_packet(struct cop_restore *r, int fd, const struct img_packet *p, bool stream)
{
        char control[CMSG_SPACE(256 * sizeof(int))] __attribute__((aligned(8)));
        struct iovec iov = {.iov_base = (void *)(uintptr_t)cop_image_at(r->image, &p->data), .iov_len = p->data.length};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        const uint32_t *files = cop_image_at(r->image, &p->files);
        size_t n = MIN_OF(p->files.length / sizeof(*files), 256UL);

        if (n > 0) {
                m.msg_control = control;
                m.msg_controllen = CMSG_SPACE(n * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n * sizeof(int));
                int *fds = (int *)(void *)CMSG_DATA(c);
                for (size_t i = 0; i < n; i++)
                        fds[i] = r->objects[files[i]];
        }
        while (iov.iov_len > 0 || !stream) {
                ssize_t sent = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent < 0)
                        return -errno;
                if (!stream)
                        break;
                iov.iov_base = (char *)iov.iov_base + sent;
                iov.iov_len -= (size_t)sent;
                m.msg_control = NULL;
                m.msg_controllen = 0;
        }
        return 0;
}

/* All that was queued for a socket, written by its peer before that is closed. */
static void send_all(struct cop_restore *r, const struct img_file *f, int fd)
{
        for (uint32_t i = 0; i < f->packets; i++)
                if (send_packet(r, fd, IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i),
                                f->arg[IMG_SOCK_TYPE] == SOCK_STREAM) < 0)
                        return;
}

/* ---- pairs ---- */

/* Datagram sockets: connect when the peer's address is known, a pair when both point at each other without names. */
static int connect_datagram(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        const struct img_ref *to = &f->peer;

        if (f->kind == IMG_FILE_UNIX && f->arg[IMG_SOCK_PEER] < r->image->count[IMG_FILES])
                to = &RESTORE_FILE(r, f->arg[IMG_SOCK_PEER])->path;
        if (to->length <= sizeof(sa_family_t))
                return 0;
        if (connect(r->objects[index], address_of(r, to), to->length) < 0 && f->kind == IMG_FILE_UNIX)
                return complain(err, f, "connecting");
        return 0;
}

static int make_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, a);
        int pair[2];

        if (socketpair(AF_UNIX, (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC, 0, pair) < 0)
                return complain(err, f, "socketpair");
        if (b == IMG_NONE) {
                send_all(r, f, pair[1]);
                close(pair[1]);
                return keep(r, a, pair[0]) < 0 ? complain(err, f, "socketpair") : 0;
        }
        /* First move, then keep: a low number must not be taken twice. */
        if (keep(r, a, pair[0]) < 0 || keep(r, b, pair[1]) < 0)
                return complain(err, f, "socketpair");
        return 0;
}

/* A connection between client and server, accepted from `listener`. */
static int connect_through(struct cop_restore *r, uint32_t client, uint32_t server, int listener,
                           const struct img_ref *to, struct cop_error *err)
{
        const struct img_file *c = RESTORE_FILE(r, client);
        int fd = new_socket(c), flags, ret;

        if (keep(r, client, fd) < 0)
                return complain(err, c, "socket");
        fd = r->objects[client];
        ret = c->kind == IMG_FILE_UNIX ? bind_unix(r, c, fd, NULL) : bind_inet(r, c, fd);
        if (ret < 0) {
                errno = -ret;
                return complain(err, c, "binding its address");
        }
        ret = c->kind == IMG_FILE_UNIX                         ? bind_unix(r, c, fd, to)
              : connect(fd, address_of(r, to), to->length) < 0 ? -errno
                                                               : 0;
        if (ret < 0) {
                errno = -ret;
                return complain(err, c, "connecting to the listener");
        }
        if (server == IMG_NONE)
                return 0;
        flags = fcntl(listener, F_GETFL);
        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags & ~O_NONBLOCK);
        int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        int saved = errno;
        if (flags & O_NONBLOCK)
                fcntl(listener, F_SETFL, flags);
        errno = saved;
        return keep(r, server, accepted) < 0 ? complain(err, c, "accepting") : 0;
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
        _cleanup_close_ int listener = new_socket(fb);
        int ret = listener < 0 ? -errno : bind_inet(r, fb, listener);
        if (ret < 0 || listen(listener, 1) < 0) {
                errno = ret < 0 ? -ret : errno;
                return complain(err, fb, "a listener for its peer");
        }
        return connect_through(r, a, b, listener, &fb->path, err);
}

static int pair_unix(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *fa = RESTORE_FILE(r, a), *fb = RESTORE_FILE(r, b);
        uint32_t la = (uint32_t)fa->arg[IMG_SOCK_LISTENER], lb = (uint32_t)fb->arg[IMG_SOCK_LISTENER];

        if (la < r->image->count[IMG_FILES] && RESTORE_FILE(r, la)->arg[IMG_SOCK_MODE])
                return connect_through(r, b, a, r->objects[la], &fa->path, err);
        if (lb < r->image->count[IMG_FILES] && RESTORE_FILE(r, lb)->arg[IMG_SOCK_MODE])
                return connect_through(r, a, b, r->objects[lb], &fb->path, err);
        return make_pair(r, a, b, err);
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
        socklen_t length = sizeof(to);

        if (f->kind == IMG_FILE_UNIX)
                return make_pair(r, index, IMG_NONE, err);
        if (f->arg[IMG_SOCK_FAMILY] == AF_INET6)
                to.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        _cleanup_close_ int listener = new_socket(f);
        _cleanup_close_ int peer = -EBADF;
        if (listener < 0 ||
            bind(listener, &to.any, f->arg[IMG_SOCK_FAMILY] == AF_INET6 ? sizeof(to.in6) : sizeof(to.in)) < 0 ||
            listen(listener, 1) < 0 || getsockname(listener, &to.any, &length) < 0 ||
            keep(r, index, new_socket(f)) < 0 || connect(r->objects[index], &to.any, length) < 0)
                return complain(err, f, "a closed connection");
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
                return complain(err, f, "a closed connection");
        send_all(r, f, peer);
        return 0;
}

static int restore_connection(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];

        if (state_of(f) == IMG_SOCK_CLOSED || peer >= r->image->count[IMG_FILES])
                return restore_closed(r, index, err);
        return f->kind == IMG_FILE_UNIX ? pair_unix(r, index, peer, err) : pair_inet(r, index, peer, err);
}

static int restore_pending(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t listener = (uint32_t)f->arg[IMG_SOCK_LISTENER];

        if (listener >= r->image->count[IMG_FILES])
                return restore_closed(r, index, err);
        return connect_through(r, index, IMG_NONE, -1, &RESTORE_FILE(r, listener)->path, err);
}

/* ---- queues and the rest ---- */

/* Sets a buffer's size as getsockopt gives it: the kernel doubles what it is told. */
static void set_buffer(int fd, int name, int size)
{
        int value = size / 2;

        if (setsockopt(fd, SOL_SOCKET, name == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &value, sizeof(value)) < 0)
                (void)setsockopt(fd, SOL_SOCKET, name, &value,
                                 sizeof(value)); /* an owner without rights: up to the limit */
}

static void set_options(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct img_sockopt *o = cop_image_at(r->image, &f->data);
        int locked = 0;

        for (size_t i = 0; i < f->data.length / sizeof(*o); i++) {
                int value = 0;
                memcpy(&value, o[i].value, sizeof(value));
                if (o[i].level == SOL_SOCKET && o[i].name == SO_BUF_LOCK)
                        locked = value;
                else if (o[i].level == SOL_SOCKET && (o[i].name == SO_SNDBUF || o[i].name == SO_RCVBUF)) {
                        int bit = o[i].name == SO_SNDBUF ? SOCK_SNDBUF_LOCK : SOCK_RCVBUF_LOCK;
                        int now = get_int(fd, o[i].name);
                        /* Setting it would end TCP's own tuning. */
                        if (now != value &&
                            (f->arg[IMG_SOCK_TYPE] != SOCK_STREAM || f->kind == IMG_FILE_UNIX || locked & bit))
                                set_buffer(fd, o[i].name, value);
                } else if (!is_cork(&o[i]))
                        set_option(fd, &o[i]);
        }
}

/* Who writes what this socket is to read: its peer, or a stranger for datagrams that came by name. */
static int restore_queue(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        bool stream = f->arg[IMG_SOCK_TYPE] == SOCK_STREAM, datagram = f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM;
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];
        _cleanup_close_ int stranger = -EBADF;
        int from = peer < r->image->count[IMG_FILES] ? r->objects[peer] : -1, ret = 0;

        if (f->packets == 0)
                return 0;
        if (datagram && (from < 0 || named(f))) {
                stranger = from = new_socket(f);
                if (from < 0 || !named(f) || connect(from, address_of(r, &f->path), f->path.length) < 0)
                        return 0; /* datagrams may get lost */
        }
        size_t total = 0;
        for (uint32_t i = 0; i < f->packets; i++)
                total += IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i)->data.length;
        if (from < 0)
                return 0; /* closed: was written before its peer was closed */
        int size = get_int(from, SO_SNDBUF), locked = get_int(from, SO_BUF_LOCK);
        bool room = f->kind == IMG_FILE_INET && stream && total > 16384;
        if (room) /* it was in two queues; now the sender's alone must take it */
                set_buffer(from, SO_SNDBUF, total > INT32_MAX / 8 ? INT32_MAX / 2 : (int)total * 4);
        for (uint32_t i = 0; i < f->packets && ret == 0; i++)
                ret = send_packet(r, from, IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i), stream);
        if (room && locked & SOCK_SNDBUF_LOCK)
                set_buffer(from, SO_SNDBUF, size);
        if (room)
                (void)setsockopt(from, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked));
        if (ret < 0 && !datagram) {
                errno = -ret;
                return complain(err, f, "filling its queue");
        }
        return 0;
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

static void finish_socket(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = r->objects[index];

        const struct sockaddr_un *a = (const void *)address_of(r, &f->path);
        bool single = state_of(f) == IMG_SOCK_IDLE || state_of(f) == IMG_SOCK_LISTENING;

        if (f->kind == IMG_FILE_UNIX && single && named(f) && a->sun_path[0] == '/' && f->arg[IMG_SOCK_MODE] == 0)
                unlink(a->sun_path);
        const struct img_sockopt *o = cop_image_at(r->image, &f->data);
        for (size_t i = 0; i < f->data.length / sizeof(*o); i++)
                if (is_cork(&o[i]))
                        set_option(fd, &o[i]);
        if (f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_SHUTDOWN] == 3)
                await_queue(r, f, fd);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 2)
                shutdown(fd, SHUT_WR);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 1)
                shutdown(fd, SHUT_RD);
        (void)fcntl(fd, F_SETFL, (int)f->flags & O_NONBLOCK);
}

static int pass(struct cop_restore *r, int which, uint32_t i, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, i);

        if (f->kind != IMG_FILE_UNIX && f->kind != IMG_FILE_INET && f->kind != IMG_FILE_NETLINK)
                return 0;
        bool single = state_of(f) == IMG_SOCK_IDLE || state_of(f) == IMG_SOCK_LISTENING;
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];
        switch (which) {
        case 0: {
                bool pair = f->kind == IMG_FILE_UNIX && f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && !named(f) &&
                            peer < r->image->count[IMG_FILES] && !named(RESTORE_FILE(r, peer)) &&
                            RESTORE_FILE(r, peer)->arg[IMG_SOCK_PEER] == i;
                if (!single || r->objects[i] >= 0)
                        return 0;
                return pair ? make_pair(r, i, peer, err) : restore_idle(r, i, err);
        }
        case 1:
                return single || state_of(f) == IMG_SOCK_PENDING || r->objects[i] >= 0 ? 0
                                                                                       : restore_connection(r, i, err);
        case 2:
                if (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && f->kind != IMG_FILE_NETLINK)
                        return connect_datagram(r, i, err);
                return state_of(f) == IMG_SOCK_PENDING ? restore_pending(r, i, err) : 0;
        case 3:
                set_options(r, f, r->objects[i]);
                return 0;
        case 4:
                return restore_queue(r, i, err);
        default:
                finish_socket(r, i);
                return 0;
        }
}

int cop_restore_sockets(struct cop_restore *r, struct cop_error *err)
{
        for (int which = 0; which < 6; which++)
                for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                        int ret = pass(r, which, i, err);
                        if (ret < 0)
                                return ret;
                }
        return 0;
}
