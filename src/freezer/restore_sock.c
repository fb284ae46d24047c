/* Sockets, rebuilt in the first process; see dump_sock.c for what is known about them.
 *
 * Order: listeners and idle ones (they need nobody); connected pairs, through their listener where it lives on, so that
 * names and ports come out right, and closed ones; options; datagrams that came from others than the peer; datagram sockets'
 * connections, and those not accepted yet; queued data; shut-down directions.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore_sock.h"

#define USUAL_DATAGRAMS 10 /* net.unix.max_dgram_qlen of a new namespace */

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
int cop_socket_keep(struct cop_restore *r, uint32_t index, int fd)
{
        if (fd < 0)
                return -errno;
        r->objects[index] = fd < r->base_fd ? cop_restore_move_high(r, fd) : fd;
        return r->objects[index] < 0 ? r->objects[index] : 0;
}

/* A setting of the network namespace that is another for a moment. */
struct setting {
        int fd; /* owned */
        char before[64];
        ssize_t length;
};

static bool setting_change(struct setting *s, const char *path, const char *value)
{
        s->fd = open(path, O_RDWR | O_CLOEXEC);
        s->length = s->fd < 0 ? -1 : read(s->fd, s->before, sizeof(s->before) - 1);
        s->before[MAX_OF(s->length, 0)] = '\0';
        if (s->length > 0 && pwrite(s->fd, value, strlen(value), 0) > 0)
                return true;
        s->fd = cop_close(s->fd);
        return false;
}

static void setting_restore(struct setting *s)
{
        if (s->fd >= 0)
                (void)!pwrite(s->fd, s->before, (size_t)s->length, 0);
        s->fd = cop_close(s->fd);
}

/* A new network namespace lets nobody have an ICMP echo socket. */
static int new_echo(const struct img_file *f)
{
        struct setting range;

        if (!setting_change(&range, "/proc/sys/net/ipv4/ping_group_range", "0 0"))
                return -1;
        int fd = socket((int)f->arg[IMG_SOCK_FAMILY], SOCK_DGRAM | SOCK_CLOEXEC, (int)f->arg[IMG_SOCK_PROTOCOL]);
        int saved = errno;
        setting_restore(&range);
        errno = saved;
        return fd;
}

int cop_socket_new(const struct img_file *f)
{
        int fd = socket((int)f->arg[IMG_SOCK_FAMILY], (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC,
                        (int)f->arg[IMG_SOCK_PROTOCOL]);

        return fd < 0 && errno == EACCES && cop_socket_is_echo(f) ? new_echo(f) : fd;
}

/* Whom SO_PEERCRED names: who made a pair or listened, or, at the accepting end of a connection, who connected. */
const struct img_credentials *cop_socket_maker(const struct cop_restore *r, const struct img_file *f)
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

        if (cop_socket_keep(r, index, fd) < 0)
                return cop_socket_complain(err, f, "socket");
        fd = r->objects[index];
        if (f->kind == IMG_FILE_PACKET)
                return 0;
        if (f->kind == IMG_FILE_NETLINK)
                ret = restore_netlink(r, f, fd);
        else
                ret = cop_socket_bind(r, f, fd);
        if (ret < 0) {
                errno = ret == -1 ? errno : -ret;
                return cop_socket_complain(err, f, "binding its address");
        }
        if (cop_socket_state(f) != IMG_SOCK_LISTENING)
                return 0;
        struct listening l = {.fd = fd, .backlog = (int)f->arg[IMG_SOCK_BACKLOG]};
        ret = cop_restore_as(r, cop_socket_maker(r, f), start_listening, &l);
        if (ret == -EADDRINUSE && f->kind == IMG_FILE_INET) {
                cop_socket_share_port(r, f, fd);
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
        int ret = cop_socket_connect_unix(r->objects[index], r->objects[peer], cop_socket_address(r, to), to->length);
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

int cop_socket_make_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, a);
        struct pairing p = {.type = (int)f->arg[IMG_SOCK_TYPE]};
        const int *pair = p.pair;
        int ret = cop_restore_as(r, cop_socket_maker(r, f), new_pair, &p);

        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, f, "socketpair");
        }
        if (b == IMG_NONE) {
                if (p.type == SOCK_DGRAM && !f->arg[IMG_SOCK_ERROR] && connect_nowhere(pair[0]) < 0)
                        return cop_socket_complain(err, f, "disconnecting");
                r->last_ends[a] = pair[1];
                return cop_socket_keep(r, a, pair[0]) < 0 ? cop_socket_complain(err, f, "socketpair") : 0;
        }
        /* First move, then keep: a low number must not be taken twice. */
        if (cop_socket_keep(r, a, pair[0]) < 0 || cop_socket_keep(r, b, pair[1]) < 0)
                return cop_socket_complain(err, f, "socketpair");
        return 0;
}

/* ---- queues and the rest ---- */

/* It is not told in line that an urgent byte was taken. */
static void take_urgent(struct cop_restore *r, const struct img_file *f, int fd)
{
        int in_line = cop_socket_option(fd, SO_OOBINLINE), off = 0;
        char byte;

        for (uint32_t i = 0; i < f->packets && !cop_socket_waits(cop_socket_state(f)); i++)
                if (IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i)->flags & IMG_PACKET_TAKEN) {
                        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &off, sizeof(off));
                        (void)!recv(fd, &byte, 1, MSG_OOB | MSG_DONTWAIT);
                        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof(in_line));
                }
}

/* A datagram to where nobody is, for the error that waits. */
static void provoke_refusal(struct cop_restore *r, const struct img_file *f, int fd)
{
        if (f->kind != IMG_FILE_INET || f->arg[IMG_SOCK_PROTOCOL] != IPPROTO_UDP ||
            f->arg[IMG_SOCK_ERROR] != ECONNREFUSED || !cop_socket_is_here(r, f, &f->peer))
                return;
        int probe = cop_socket_new(f);
        bool nobody = probe >= 0 && bind(probe, cop_socket_address(r, &f->peer), f->peer.length) == 0;
        cop_close(probe);
        if (nobody)
                (void)send(fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void finish_socket(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int fd = r->objects[index];

        provoke_refusal(r, f, fd); /* before UDP_CORK */
        if (f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_TYPE] == SOCK_STREAM)
                take_urgent(r, f, fd);
        cop_socket_set_last(r, f, fd);
        if (f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_SHUTDOWN] == 3)
                cop_socket_await_queue(r, f, fd);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 2)
                shutdown(fd, SHUT_WR);
        if (f->arg[IMG_SOCK_SHUTDOWN] & 1)
                shutdown(fd, SHUT_RD);
        if (cop_socket_state(f) == IMG_SOCK_CONNECTING && cop_socket_is_here(r, f, &f->peer) &&
            fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
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
        PASS_ALL_SENT,
        PASSES
};

static int restore_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err)
{
        const uint32_t both[] = {a, b};
        int ret = cop_socket_make_pair(r, a, b, err);

        for (size_t i = 0; i < ELEMENTSOF(both) && ret == 0; i++) {
                const struct img_file *f = RESTORE_FILE(r, both[i]);
                errno = -cop_socket_bind(r, f, r->objects[both[i]]);
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
                return cop_socket_make_pair(r, i, IMG_NONE, err);
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
                return single || pending || r->objects[i] >= 0 ? 0 : cop_socket_connect(r, i, err);
        case PASS_OPTIONS:
                if (!pending)
                        cop_socket_set_options(r, f, r->objects[i]);
                return 0;
        case PASS_STRANGERS:
                return cop_socket_queue_first(r, i) ? cop_socket_restore_queue(r, i, err) : 0;
        case PASS_DATAGRAMS:
                return datagram ? connect_datagram(r, i, err) : 0;
        case PASS_PENDING:
                return cop_socket_state(f) == IMG_SOCK_LISTENING ? cop_socket_fill_listener(r, i, err) : 0;
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

/* How many datagrams a unix socket takes is decided by the namespace when it is made. */
static void make_room_for_datagrams(const struct cop_restore *r, struct setting *ret)
{
        uint32_t most = 0;
        char value[16];

        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++)
                if (cop_socket_unix_datagram(RESTORE_FILE(r, i)))
                        most = MAX_OF(most, RESTORE_FILE(r, i)->packets);
        snprintf(value, sizeof(value), "%u", most);
        if (most > USUAL_DATAGRAMS && setting_change(ret, "/proc/sys/net/unix/max_dgram_qlen", value) &&
            strtoul(ret->before, NULL, 10) > most)
                setting_restore(ret);
}

int cop_restore_sockets(struct cop_restore *r, struct cop_error *err)
{
        uint32_t n = r->image->count[IMG_FILES];
        struct setting limit = {.fd = -EBADF};
        int ret;

        r->last_ends = malloc((n + 1) * sizeof(int));
        if (!r->last_ends)
                return cop_error_errno(err, ENOMEM, "rebuilding sockets");
        for (uint32_t i = 0; i < n; i++)
                r->last_ends[i] = -EBADF;
        make_room_for_datagrams(r, &limit);
        ret = run_passes(r, err);
        setting_restore(&limit);
        for (uint32_t i = 0; i < n; i++)
                cop_close(r->last_ends[i]);
        free(r->last_ends);
        r->last_ends = NULL;
        return ret;
}
