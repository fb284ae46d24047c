/* What is queued in sockets, written again by who wrote it: a peer, or for datagrams the socket of the tree that has the sender's
 * address; for a sender that is gone a socket that takes its address for a moment, if it can be had.
 *
 * A datagram socket that is connected takes messages from its peer only; what had come from others before is queued before it is
 * connected again.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/socket.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/rights.h"
#include "freezer/restore_sock.h"
#include "freezer/sock_diag.h"

#define ASKED_MAX 100 /* times 10 ms */

/* Where a datagram goes: to the peer (length 0) or a name. */
struct destination {
        struct sockaddr_storage address;
        socklen_t length;
};

struct sending {
        int fd;
        struct msghdr *message; /* one buffer */
        bool stream;            /* may take it in pieces */
        int flags;
};

static int send_message(void *argument)
{
        struct sending *s = argument;
        struct iovec *iov = s->message->msg_iov;

        while (iov->iov_len > 0 || !s->stream) {
                ssize_t sent = sendmsg(s->fd, s->message, MSG_DONTWAIT | MSG_NOSIGNAL | s->flags);
                if (sent < 0)
                        return -errno;
                if (!s->stream)
                        break;
                iov->iov_base = (char *)iov->iov_base + sent;
                iov->iov_len -= (size_t)sent;
                s->message->msg_control = NULL;
                s->message->msg_controllen = 0;
        }
        return 0;
}

static int send_packet(struct cop_restore *r, int fd, const struct img_packet *p, bool stream,
                       const struct destination *to)
{
        char control[COP_RIGHTS_SPACE(COP_RIGHTS_MAX)] __attribute__((aligned(8)));
        int fds[COP_RIGHTS_MAX];
        struct iovec iov = {.iov_base = (void *)(uintptr_t)cop_image_at(r->image, &p->data), .iov_len = p->data.length};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        const uint32_t *files = cop_image_at(r->image, &p->files);
        size_t n = MIN_OF(p->files.length / sizeof(*files), COP_RIGHTS_MAX);

        if (to && to->length) {
                m.msg_name = (void *)(uintptr_t)&to->address;
                m.msg_namelen = to->length;
        }
        if (n > 0) {
                for (size_t i = 0; i < n; i++)
                        fds[i] = r->objects[files[i]];
                m.msg_control = control;
                cop_rights_put(&m, fds, n);
        }
        struct sending s = {
                .fd = fd, .message = &m, .stream = stream, .flags = p->flags & IMG_PACKET_URGENT ? MSG_OOB : 0};
        return cop_restore_as(r, cop_restore_credentials(r, &p->credentials), send_message, &s);
}

static const struct img_packet *packet_of(const struct cop_restore *r, const struct img_file *f, uint32_t i)
{
        return IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i);
}

/* ---- senders ---- */

static bool as_ipv6(const struct cop_restore *r, const struct img_ref *ref, struct sockaddr_in6 *ret)
{
        return cop_socket_as_ipv6(cop_socket_address(r, ref), ref->length, ret);
}

/* Whether a socket with this name can have sent from that address. */
static bool sends_from(const struct cop_restore *r, const struct img_ref *name, const struct img_ref *address)
{
        struct sockaddr_in6 own, from;

        if (name->length == address->length &&
            memcmp(cop_socket_address(r, name), cop_socket_address(r, address), name->length) == 0)
                return true;
        return as_ipv6(r, name, &own) && as_ipv6(r, address, &from) && own.sin6_port == from.sin6_port &&
               (IN6_IS_ADDR_UNSPECIFIED(&own.sin6_addr) ||
                memcmp(&own.sin6_addr, &from.sin6_addr, sizeof(own.sin6_addr)) == 0);
}

/* The socket of the tree that a datagram came from, or IMG_NONE. */
static uint32_t find_sender(const struct cop_restore *r, uint32_t index, const struct img_packet *p)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t n = r->image->count[IMG_FILES], peer = (uint32_t)f->arg[IMG_SOCK_PEER];

        if (p->address.length <= sizeof(sa_family_t)) /* who has no name can only be known as the peer */
                return peer < n && !cop_socket_named(RESTORE_FILE(r, peer)) ? peer : IMG_NONE;
        for (uint32_t i = 0; i < n; i++) {
                const struct img_file *g = RESTORE_FILE(r, i);
                if (g->kind == f->kind && g->arg[IMG_SOCK_TYPE] == SOCK_DGRAM &&
                    g->arg[IMG_SOCK_PROTOCOL] == f->arg[IMG_SOCK_PROTOCOL] && cop_socket_named(g) &&
                    sends_from(r, &g->path, &p->address))
                        return i;
        }
        return IMG_NONE;
}

/* A socket that stands for senders which are gone; the last one is kept for what comes next. */
struct stranger {
        int fd;
        const struct img_packet *of;
        char unlink[sizeof(((struct sockaddr_un *)0)->sun_path) + 1]; /* a file of its name, to be removed */
};

static void stranger_done(struct stranger *s)
{
        cop_close(s->fd);
        if (s->unlink[0])
                unlink(s->unlink);
        *s = (struct stranger){.fd = -EBADF};
}

/* An address that is not to be had (of another machine, or a file that is there): then it comes from nobody. */
static void take_name(struct cop_restore *r, struct stranger *s)
{
        const struct sockaddr *a = cop_socket_address(r, &s->of->address);
        size_t offset = offsetof(struct sockaddr_un, sun_path);

        if (bind(s->fd, a, s->of->address.length) == 0 && a->sa_family == AF_UNIX)
                memcpy(s->unlink, (const char *)a + offset,
                       MIN_OF(s->of->address.length - offset, sizeof(s->unlink) - 1));
}

int cop_socket_send_all(struct cop_restore *r, const struct img_file *f, int fd)
{
        struct stranger s = {.fd = fd};
        int ret = 0;

        for (uint32_t i = 0; i < f->packets && ret >= 0; i++) {
                const struct img_packet *p = packet_of(r, f, i);
                if (!s.of && p->address.length > sizeof(sa_family_t)) { /* it has only ever had this one */
                        s.of = p;
                        take_name(r, &s);
                }
                ret = send_packet(r, fd, p, f->arg[IMG_SOCK_TYPE] == SOCK_STREAM, NULL);
        }
        s.fd = -EBADF; /* the caller's */
        stranger_done(&s);
        return ret;
}

static int get_stranger(struct cop_restore *r, const struct img_file *f, const struct img_packet *p, struct stranger *s)
{
        const struct sockaddr *a = cop_socket_address(r, &p->address);
        int on = 1;

        if (s->fd >= 0 && s->of->address.length == p->address.length &&
            memcmp(cop_socket_address(r, &s->of->address), a, p->address.length) == 0)
                return s->fd;
        stranger_done(s);
        s->of = p;
        s->fd = cop_socket_new(f);
        if (s->fd < 0)
                return -errno;
        cop_socket_set_buffer(s->fd, SO_SNDBUF, 8 << 20); /* it may stand for several */
        if (p->address.length <= sizeof(sa_family_t))
                return s->fd;
        (void)setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        take_name(r, s);
        return s->fd;
}

bool cop_socket_queue_first(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];

        if (f->arg[IMG_SOCK_TYPE] != SOCK_DGRAM)
                return false;
        if (cop_socket_nameless(f)) { /* its mate may turn to another */
                uint32_t mate = cop_socket_mate(r, index);
                return mate != IMG_NONE && RESTORE_FILE(r, mate)->arg[IMG_SOCK_PEER] != index;
        }
        if (!cop_socket_named(f))
                return false;
        for (uint32_t i = 0; i < f->packets; i++) {
                uint32_t sender = find_sender(r, index, packet_of(r, f, i));
                if (sender == IMG_NONE || sender != peer)
                        return true;
        }
        return false;
}

/* A socket's file is reached through *ret_file_fd, which is to be kept open. */
static int find_destination(const struct cop_restore *r, uint32_t index, struct destination *ret, int *ret_file_fd)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        *ret = (struct destination){.length = cop_socket_named(f) ? f->path.length : 0};
        if (ret->length > sizeof(ret->address))
                return -EBADMSG;
        memcpy(&ret->address, cop_socket_address(r, &f->path), ret->length);
        *ret_file_fd = f->kind == IMG_FILE_UNIX && ret->length ? cop_socket_file(r->objects[index]) : -EBADF;
        if (*ret_file_fd >= 0) {
                cop_socket_file_address(*ret_file_fd, (struct sockaddr_un *)(void *)&ret->address);
                ret->length = sizeof(struct sockaddr_un);
        }
        return 0;
}

/* The same place for a sender of IPv4; one that listens everywhere is reached at the sender's own address. */
static struct destination as_ipv4(const struct cop_restore *r, const struct img_file *f, const struct img_packet *p)
{
        struct sockaddr_in6 to = {0}, from = {0};
        struct destination d = {.length = sizeof(struct sockaddr_in)};
        struct sockaddr_in *a = (void *)&d.address;

        (void)as_ipv6(r, &f->path, &to);
        (void)as_ipv6(r, &p->address, &from);
        *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = to.sin6_port};
        const struct in6_addr *at = IN6_IS_ADDR_UNSPECIFIED(&to.sin6_addr) ? &from.sin6_addr : &to.sin6_addr;
        memcpy(&a->sin_addr, &at->s6_addr[12], sizeof(a->sin_addr));
        return d;
}

static int send_datagram(struct cop_restore *r, uint32_t index, const struct img_packet *p, struct stranger *s,
                         const struct destination *to)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        uint32_t sender = find_sender(r, index, p);
        int fd = sender != IMG_NONE && r->objects[sender] >= 0 ? r->objects[sender]
                 : cop_socket_named(f)                         ? get_stranger(r, f, p, s)
                                                               : -ENOTCONN;

        if (fd < 0)
                return fd;
        if (sender != IMG_NONE && f->arg[IMG_SOCK_FAMILY] == AF_INET6 &&
            RESTORE_FILE(r, sender)->arg[IMG_SOCK_FAMILY] == AF_INET) {
                struct destination other = as_ipv4(r, f, p);
                return send_packet(r, fd, p, false, &other);
        }
        return send_packet(r, fd, p, false, to);
}

static int restore_datagrams(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        struct stranger s = {.fd = -EBADF};
        struct destination to;
        _cleanup_close_ int file_fd = -EBADF;
        bool nameless = cop_socket_nameless(f);
        uint32_t mate = nameless ? cop_socket_mate(r, index) : IMG_NONE;
        int ret = find_destination(r, index, &to, &file_fd);

        if ((nameless && mate == IMG_NONE) ||
            (f->kind == IMG_FILE_INET && (!cop_socket_named(f) || !cop_socket_is_here(r, f, &f->path))))
                return 0;
        for (uint32_t i = 0; i < f->packets && ret >= 0; i++)
                ret = nameless ? send_packet(r, r->objects[mate], packet_of(r, f, i), false, NULL)
                               : send_datagram(r, index, packet_of(r, f, i), &s, &to);
        stranger_done(&s);
        if (ret < 0 && f->kind == IMG_FILE_UNIX) { /* others may get lost */
                errno = -ret;
                return cop_socket_complain(err, f, "filling its queue");
        }
        return 0;
}

/* ---- all of them ---- */

/* The engine may have rights that this process has not. */
static void ask_for_room(struct cop_restore *r, int fd, int size)
{
        struct cop_restore_shared *s = r->shared;

        s->room.fd = fd;
        s->room.size = size;
        __atomic_store_n(&s->room.asked, 1, __ATOMIC_SEQ_CST);
        cop_restore_tell(s);
        for (int i = 0; i < ASKED_MAX && __atomic_load_n(&s->room.asked, __ATOMIC_SEQ_CST); i++) {
                struct timespec ts = {.tv_nsec = 10000000};
                syscall(SYS_futex, &s->room.asked, FUTEX_WAIT, 1, &ts);
        }
}

/* Without the right to go beyond the limit, what TCP gives itself may be more than what can be asked for. */
static void make_room(struct cop_restore *r, int fd, int size)
{
        _cleanup_close_ int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        cop_socket_set_buffer(probe, SO_SNDBUF, size);
        if (cop_socket_option(probe, SO_SNDBUF) > cop_socket_option(fd, SO_SNDBUF))
                cop_socket_set_buffer(fd, SO_SNDBUF, size);
        if (cop_socket_option(fd, SO_SNDBUF) < size)
                ask_for_room(r, fd, size);
}

static size_t queued(const struct cop_restore *r, const struct img_file *f)
{
        size_t total = 0;

        for (uint32_t i = 0; i < f->packets; i++)
                total += packet_of(r, f, i)->data.length;
        return total;
}

static int room_for(size_t total)
{
        return total > INT32_MAX / 8 ? INT32_MAX / 2 : (int)total * 4;
}

/* By an end that closes then: its buffer may have been larger than that of a new socket. */
static int write_last(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        int want = room_for(queued(r, f) + f->packets * 1024UL);

        if (cop_socket_option(r->last_ends[index], SO_SNDBUF) < want)
                make_room(r, r->last_ends[index], want);
        int ret = cop_socket_send_all(r, f, r->last_ends[index]);
        if (f->arg[IMG_SOCK_ERROR] == ECONNRESET) /* it closes with something unread */
                (void)send(r->objects[index], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        r->last_ends[index] = cop_close(r->last_ends[index]);
        errno = -ret;
        return ret < 0 ? cop_socket_complain(err, f, "filling its queue") : 0;
}

int cop_socket_restore_queue(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        bool stream = f->arg[IMG_SOCK_TYPE] == SOCK_STREAM;
        uint32_t peer = (uint32_t)f->arg[IMG_SOCK_PEER];
        bool own = cop_socket_state(f) == IMG_SOCK_WAITING ||
                   cop_socket_state(f) == IMG_SOCK_LEFT; /* it has sent that itself */
        int from = own ? r->objects[index] : peer < r->image->count[IMG_FILES] ? r->objects[peer] : -1, ret = 0;

        if (r->last_ends[index] >= 0)
                return write_last(r, index, err);
        if (f->packets == 0 || (f->kind != IMG_FILE_UNIX && f->kind != IMG_FILE_INET))
                return 0;
        if (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM)
                return restore_datagrams(r, index, err);
        if (from < 0)
                return 0; /* closed: was written before its peer was closed */
        int size = cop_socket_option(from, SO_SNDBUF), locked = cop_socket_option(from, SO_BUF_LOCK);
        int want = room_for(queued(r, f));
        bool room =
                f->kind == IMG_FILE_INET && size < want; /* it was in two queues; now the sender's alone must take it */
        if (room)
                make_room(r, from, want);
        for (uint32_t i = 0; i < f->packets && ret == 0; i++)
                ret = send_packet(r, from, packet_of(r, f, i), stream, NULL);
        if (room && locked & SOCK_SNDBUF_LOCK)
                cop_socket_set_buffer(from, SO_SNDBUF, size);
        if (room)
                (void)setsockopt(from, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked));
        if (ret < 0) {
                errno = -ret;
                return cop_socket_complain(err, f, "filling its queue");
        }
        return 0;
}
