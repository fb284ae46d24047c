/* Sockets.
 *
 * Theory of operation.  Unix sockets tell by unix_diag who is connected to whom (inodes), TCP sockets of one tree are
 * matched by their addresses.  Queues are read with MSG_PEEK.  Of a TCP pair inside the tree, bytes that the sender still
 * holds and the receiver has not yet seen are read from the send queue in TCP_REPAIR mode and count as received: at thaw a
 * real connection is made between the two ends and the queue is written into it, so no sequence number has to be saved.
 * An end whose peer is outside the tree becomes one that was closed by the peer.
 *
 * The first pass (cop_dump_socket) records each by itself; the second, when all are known, finds peers and listeners.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/child_call.h"
#include "freezer/dump_sock.h"

/* ---- queues ---- */

/* TCP cannot always step with SO_PEEK_OFF: peek all that FIONREAD tells in one go. */
static int dump_tcp_queue(struct cop_dump *d, struct img_file *f, int fd, struct cop_error *err)
{
        int queued = 0;

        if (ioctl(fd, SIOCINQ, &queued) < 0 || queued <= 0)
                return 0;
        _cleanup_free_ char *buf = malloc((size_t)queued);
        if (!buf)
                return cop_error_errno(err, ENOMEM, "reading a socket's queue");
        ssize_t n = recv(fd, buf, (size_t)queued, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0) {
                struct img_packet p = {.data = cop_image_put(d->writer, buf, (size_t)n)};
                cop_dump_put_queue(d, f, &p, 1);
        }
        return 0;
}

/* ---- each by itself ---- */

static int dump_unix(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, int fd, struct cop_error *err)
{
        int listening = 0;
        socklen_t length = sizeof(listening);
        struct sockaddr_un peer, own = {0};
        struct ucred who = {0};
        struct stat st;

        f->kind = IMG_FILE_UNIX;
        f->arg[IMG_SOCK_CWD] = known->proc;
        (void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length);
        f->arg[IMG_SOCK_STATE] = listening ? IMG_SOCK_LISTENING : IMG_SOCK_IDLE;
        length = sizeof(who);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
                f->peer = cop_dump_credentials(d, &who);
        /* Until a peer in the tree is found.  A connection made from outside belongs to the network namespace of whoever made
         * it, so that unix_diag does not show it here at all. */
        length = sizeof(peer);
        bool met = !listening && getpeername(fd, (struct sockaddr *)&peer, &length) == 0;
        if (met && f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM)
                f->arg[IMG_SOCK_ERROR] = ECONNREFUSED;
        else if (met)
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_CLOSED;
        if (f->path.length > sizeof(sa_family_t)) {
                _cleanup_close_ int file = ioctl(fd, SIOCUNIXFILE);
                length = sizeof(own);
                (void)getsockname(fd, (struct sockaddr *)&own, &length);
                if (file >= 0 && fstat(file, &st) == 0 && st.st_nlink > 0) {
                        char place[4352];
                        if (cop_dump_socket_place(d, known->proc, &own, file, place, sizeof(place)) == 0)
                                f->place = cop_image_puts(d->writer, place);
                        f->arg[IMG_SOCK_MODE] = st.st_mode;
                        f->arg[IMG_SOCK_OWNER] = cop_dump_uid(d, st.st_uid) | (uint64_t)cop_dump_gid(d, st.st_gid)
                                                                                      << 32;
                }
        }
        return 0; /* the queue follows: what is in flight there may be this socket itself */
}

static void add_peer_name(struct cop_dump *d, struct img_file *f, int fd)
{
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);

        if (f->kind == IMG_FILE_INET) /* the option takes no more room than there is to tell */
                length = f->arg[IMG_SOCK_FAMILY] == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        /* Also of one that is connecting, unlike getpeername. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &length) == 0)
                f->peer = cop_image_put(d->writer, &address, length);
}

/* 3 when it sends no more either. */
static unsigned is_hung_up(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) <= 0 ? 0 : p.revents & POLLHUP ? 3 : p.revents & POLLRDHUP ? 1 : 0;
}

/* In a state in which no FIN has come only a shutdown(SHUT_RD) makes this so; when one has come it makes no difference. */
static bool receives_no_more(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) > 0 && p.revents & POLLRDHUP;
}

/* A connection that has come to its end in both directions, or was reset or refused, is told from a new socket by its being shut
 * down. */
static void dump_ended(struct img_file *f, int fd, const struct tcp_info *info)
{
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        bool error = poll(&p, 1, 0) > 0 && p.revents & POLLERR;
        bool met = info->tcpi_bytes_acked > 0 || info->tcpi_bytes_sent > 0 || info->tcpi_bytes_received > 0 ||
                   info->tcpi_segs_out != 1;

        f->arg[IMG_SOCK_STATE] = p.revents & POLLRDHUP && (error || met) ? IMG_SOCK_CLOSED : IMG_SOCK_IDLE;
        if (f->arg[IMG_SOCK_STATE] == IMG_SOCK_IDLE) {
                f->peer = (struct img_ref){0};
                return;
        }
        f->arg[IMG_SOCK_SHUTDOWN] = error ? 0 : 2;
        f->arg[IMG_SOCK_ERROR] = error ? met ? ECONNRESET : ECONNREFUSED : 0;
}

static int dump_tcp(struct cop_dump *d, struct img_file *f, int fd, struct cop_error *err)
{
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
                return cop_error_errno(err, errno, "reading the state of a TCP socket");
        add_peer_name(d, f, fd);
        switch (info.tcpi_state) {
        case TCP_LISTEN:
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_LISTENING;
                f->arg[IMG_SOCK_BACKLOG] = info.tcpi_sacked;
                return 0;
        case TCP_CLOSE:
                dump_ended(f, fd, &info);
                return 0;
        case TCP_SYN_SENT:
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_CONNECTING;
                return 0;
        case TCP_ESTABLISHED:
                f->arg[IMG_SOCK_SHUTDOWN] = receives_no_more(fd);
                break;
        case TCP_FIN_WAIT1:
        case TCP_FIN_WAIT2:
                f->arg[IMG_SOCK_SHUTDOWN] = 2U | receives_no_more(fd);
                break;
        case TCP_CLOSING:
        case TCP_LAST_ACK:
                f->arg[IMG_SOCK_SHUTDOWN] = 2;
                break;
        default:
                break;
        }
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_CONNECTED; /* the queue follows when the peer is known */
        return 0;
}

/* Only a network card takes time to send what is not held back. */
static bool holds_back(int fd)
{
        int queued = 0;

        for (int i = 0; i < 20; i++) {
                if (ioctl(fd, SIOCOUTQ, &queued) < 0 || queued == 0)
                        return false;
                usleep(1000);
        }
        return true;
}

static int dump_inet(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, int fd, struct cop_error *err)
{
        f->kind = IMG_FILE_INET;
        if (f->arg[IMG_SOCK_TYPE] == SOCK_STREAM && f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_TCP)
                return dump_tcp(d, f, fd, err);
        if (f->arg[IMG_SOCK_TYPE] == SOCK_RAW || cop_socket_is_echo(f)) {
                add_peer_name(d, f, fd);
                f->arg[IMG_SOCK_SHUTDOWN] = is_hung_up(fd);
                return cop_dump_raw(d, known, f, fd, err);
        }
        if (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM && holds_back(fd))
                return cop_not_freezable(d, known->proc, err,
                                         "holds back a part of a datagram (UDP_CORK or MSG_MORE, fd %d)", known->fd);
        if (f->arg[IMG_SOCK_TYPE] != SOCK_DGRAM)
                return cop_not_freezable(d, known->proc, err, "holds an unknown socket of protocol %d (fd %d)",
                                         (int)f->arg[IMG_SOCK_PROTOCOL], known->fd);
        add_peer_name(d, f, fd);
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_IDLE;
        f->arg[IMG_SOCK_SHUTDOWN] = is_hung_up(fd);
        return cop_dump_queue(d, known, f, fd, err);
}

static int get_int(int fd, int name)
{
        int value = 0;
        socklen_t length = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, name, &value, &length) < 0 ? -errno : value;
}

/* Answers come from the kernel, and nobody else can send them.  What is told to a group may get lost. */
static int check_answers(struct cop_dump *d, const struct cop_dump_file *known, int fd, struct cop_error *err)
{
        struct sockaddr_nl from = {0};
        socklen_t length = sizeof(from);
        char byte;

        if (recvfrom(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, (struct sockaddr *)&from, &length) < 0 || from.nl_groups)
                return 0;
        return cop_not_freezable(d, known->proc, err, "has not read what a netlink socket answered (fd %d)", known->fd);
}

static void add_netlink_peer(struct cop_dump *d, struct img_file *f, int fd)
{
        struct sockaddr_nl peer = {0};
        socklen_t length = sizeof(peer);

        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && (peer.nl_pid || peer.nl_groups))
                f->peer = cop_image_put(d->writer, &peer, sizeof(peer));
}

int cop_dump_socket(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_error *err)
{
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int fd = cop_dump_duplicate(d, known, err);

        if (fd < 0)
                return fd;
        int family = get_int(fd, SO_DOMAIN);
        f->arg[IMG_SOCK_FAMILY] = (uint64_t)family;
        f->arg[IMG_SOCK_TYPE] = (uint64_t)get_int(fd, SO_TYPE);
        f->arg[IMG_SOCK_PROTOCOL] = (uint64_t)get_int(fd, SO_PROTOCOL);
        f->arg[IMG_SOCK_PEER] = f->arg[IMG_SOCK_LISTENER] = IMG_NONE;
        if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
                f->path = cop_image_put(d->writer, &address, length);
        int r = cop_dump_sock_options(d, known, f, fd, err);
        if (r < 0)
                return r;
        switch (family) {
        case AF_UNIX:
                return dump_unix(d, known, f, fd, err);
        case AF_INET:
        case AF_INET6:
                return dump_inet(d, known, f, fd, err);
        case AF_PACKET:
                return cop_dump_packet(d, known, f, fd, err);
        case AF_NETLINK:
                f->kind = IMG_FILE_NETLINK;
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_IDLE;
                add_netlink_peer(d, f, fd);
                return check_answers(d, known, fd, err);
        default:
                return cop_not_freezable(d, known->proc, err, "holds a socket of family %d (fd %d)", family, known->fd);
        }
}

int cop_dump_unix_queues(struct cop_dump *d, size_t first, struct cop_error *err)
{
        int r = 0;

        for (size_t i = first; i < d->file_count && r == 0; i++) {
                struct cop_dump_file known = d->files[i]; /* copies: descriptors in flight add to the tables */
                struct img_file f = *(const struct img_file *)cop_image_record(d->writer, IMG_FILES, known.index);
                if (f.kind != IMG_FILE_UNIX || known.mapping || f.arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING)
                        continue;
                r = cop_dump_queue(d, &known, &f, known.own_fd, err);
                if (r == 0)
                        *(struct img_file *)cop_image_record(d->writer, IMG_FILES, known.index) = f;
        }
        return r;
}

/* ---- peers ---- */

struct img_file *cop_dump_file_at(struct cop_dump *d, uint32_t i)
{
        return cop_image_record(d->writer, IMG_FILES, i);
}

/* No inode of a socket has two descriptions. */
uint32_t cop_dump_unix_socket(struct cop_dump *d, const struct img_file *like, uint32_t ino)
{
        const struct cop_dump_object *o = cop_dump_object(d, like->dev, ino);
        uint32_t index = o && o->first ? d->files[o->first - 1].index : IMG_NONE;

        return index != IMG_NONE && cop_dump_file_at(d, index)->kind == IMG_FILE_UNIX ? index : IMG_NONE;
}

static bool same_bytes(struct cop_dump *d, const struct img_ref *a, const struct img_ref *b)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return a->length == b->length && a->length > sizeof(sa_family_t) &&
               memcmp(heap + a->offset, heap + b->offset, a->length) == 0;
}

/* The listener an accepted end has its name from. */
static uint32_t find_listener(struct cop_dump *d, uint32_t end)
{
        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i), *e = cop_dump_file_at(d, end);
                if (f->kind == e->kind && f->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING &&
                    f->arg[IMG_SOCK_TYPE] == e->arg[IMG_SOCK_TYPE] && same_bytes(d, &f->path, &e->path))
                        return i;
        }
        return IMG_NONE;
}

struct cop_dump_file *cop_dump_known_socket(const struct cop_dump *d, uint32_t index)
{
        struct cop_dump_file *known = cop_dump_known_index(d, index);

        return known && !known->mapping ? known : NULL;
}

static int link_unix(struct cop_dump *d, const struct cop_unix_table *t, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);
        const struct cop_unix_info *u = cop_unix_table_find(t, f->ino);

        if (!u)
                return 0;
        f->arg[IMG_SOCK_SHUTDOWN] = u->shutdown;
        if (f->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING) {
                f->arg[IMG_SOCK_BACKLOG] = u->backlog;
                return cop_dump_unix_waiting(d, t, index, err);
        }
        if (cop_socket_waits(f->arg[IMG_SOCK_STATE]))
                return 0;
        bool connected = u->state == TCP_ESTABLISHED;
        uint32_t peer = u->peer ? cop_dump_unix_socket(d, f, u->peer) : IMG_NONE;
        if (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM) {
                f->arg[IMG_SOCK_PEER] = peer;
                if (peer != IMG_NONE)
                        f->arg[IMG_SOCK_ERROR] = 0;
                return 0;
        }
        if (!connected)
                return 0;
        f->arg[IMG_SOCK_STATE] = peer == IMG_NONE ? IMG_SOCK_CLOSED : IMG_SOCK_CONNECTED;
        f->arg[IMG_SOCK_PEER] = peer;
        f->arg[IMG_SOCK_LISTENER] = find_listener(d, index);
        return 0;
}

/* A client whose other end is nobody's descriptor may wait at a listener of the tree. */
static int find_waiting(struct cop_dump *d, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        const struct sockaddr_in *to = (const void *)(heap + f->peer.offset),
                                 *own = (const void *)(heap + f->path.offset);
        struct cop_dump_file *known = cop_dump_known_socket(d, index);
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *g = cop_dump_file_at(d, i);
                const struct sockaddr_in *a = (const void *)(heap + g->path.offset);
                if (g->kind != IMG_FILE_INET || g->arg[IMG_SOCK_STATE] != IMG_SOCK_LISTENING ||
                    f->peer.length < sizeof(sa_family_t) + 2 || a->sin_port != to->sin_port ||
                    own->sin_port == to->sin_port)
                        continue;
                if (!known || known->own_fd < 0 || getsockopt(known->own_fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
                        continue;
                if (info.tcpi_state != TCP_ESTABLISHED)
                        continue;
                if (info.tcpi_bytes_acked > 1 || info.tcpi_notsent_bytes > 0 || info.tcpi_unacked > 0)
                        return cop_not_freezable(d, known->proc, err,
                                                 "has sent data into a connection that is not accepted yet (fd %d)",
                                                 known->fd);
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_PENDING;
                f->arg[IMG_SOCK_LISTENER] = i;
        }
        return 0;
}

static bool is_tcp(const struct img_file *f, enum img_socket_state state)
{
        return f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_TYPE] == SOCK_STREAM && f->arg[IMG_SOCK_STATE] == state;
}

/* The last TCP socket of the tree that listens at the port of this address; IMG_NONE: nobody does. */
static uint32_t find_tcp_listener(struct cop_dump *d, const struct img_ref *address)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);
        const struct sockaddr_in *wanted = (const void *)(heap + address->offset);
        uint32_t found = IMG_NONE;

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *g = cop_dump_file_at(d, i);
                const struct sockaddr_in *own = (const void *)(heap + g->path.offset);
                if (is_tcp(g, IMG_SOCK_LISTENING) && g->path.length > sizeof(sa_family_t) &&
                    own->sin_port == wanted->sin_port)
                        found = i;
        }
        return found;
}

/* ---- both ends of a TCP connection ---- */

/* Its addresses, of either family as IPv6 has them: the ends need not be of the same. */
struct end {
        struct {
                struct in6_addr own_address, to_address;
                uint16_t own_port, to_port;
        } key;
        uint32_t file;
};

struct ends {
        struct end *list; /* owned; sorted */
        size_t count;
};

static bool address_of(struct cop_dump *d, const struct img_ref *ref, struct sockaddr_in6 *ret)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return cop_socket_as_ipv6(heap + ref->offset, ref->length, ret);
}

static bool get_end(struct cop_dump *d, uint32_t index, struct end *ret)
{
        const struct img_file *f = cop_dump_file_at(d, index);
        struct sockaddr_in6 own, to;

        if (!address_of(d, &f->path, &own) || !address_of(d, &f->peer, &to))
                return false;
        *ret = (struct end){.file = index};
        ret->key.own_address = own.sin6_addr;
        ret->key.to_address = to.sin6_addr;
        ret->key.own_port = own.sin6_port;
        ret->key.to_port = to.sin6_port;
        return true;
}

static int compare_ends(const void *a, const void *b)
{
        return memcmp(&((const struct end *)a)->key, &((const struct end *)b)->key, sizeof(((struct end *)0)->key));
}

static int collect_ends(struct cop_dump *d, enum img_socket_state state, struct ends *ret, struct cop_error *err)
{
        uint32_t n = cop_image_count(d->writer, IMG_FILES);

        *ret = (struct ends){.list = malloc((n + 1) * sizeof(struct end))};
        if (!ret->list)
                return cop_error_errno(err, ENOMEM, "looking for the ends of connections");
        for (uint32_t i = 0; i < n; i++)
                if (is_tcp(cop_dump_file_at(d, i), state) && get_end(d, i, &ret->list[ret->count]))
                        ret->count++;
        qsort(ret->list, ret->count, sizeof(struct end), compare_ends);
        return 0;
}

/* Both addresses the other way round; IMG_NONE: not in the tree. */
static uint32_t find_other_end(struct cop_dump *d, const struct ends *e, uint32_t index)
{
        struct end own, other;

        if (!get_end(d, index, &own))
                return IMG_NONE;
        other = own;
        other.key.own_address = own.key.to_address;
        other.key.to_address = own.key.own_address;
        other.key.own_port = own.key.to_port;
        other.key.to_port = own.key.own_port;
        const struct end *found = bsearch(&other, e->list, e->count, sizeof(other), compare_ends);
        return found && found->file != index ? found->file : IMG_NONE;
}

static int link_inet(struct cop_dump *d, const struct ends *e, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);

        if (f->arg[IMG_SOCK_STATE] != IMG_SOCK_CONNECTED)
                return 0;
        f->arg[IMG_SOCK_PEER] = find_other_end(d, e, index);
        f->arg[IMG_SOCK_LISTENER] = find_tcp_listener(d, &f->path);
        if (f->arg[IMG_SOCK_PEER] != IMG_NONE)
                return 0;
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_CLOSED;
        return find_waiting(d, index, err);
}

/* Two ends of one connection that was closed by both: made anew as one, it ends again. */
static int link_ended(struct cop_dump *d, struct cop_error *err)
{
        struct ends e = {0};
        int r = collect_ends(d, IMG_SOCK_CLOSED, &e, err);

        for (size_t i = 0; i < e.count && r == 0; i++) {
                struct img_file *f = cop_dump_file_at(d, e.list[i].file);
                uint32_t other = find_other_end(d, &e, e.list[i].file);
                if (other == IMG_NONE || f->arg[IMG_SOCK_ERROR] || cop_dump_file_at(d, other)->arg[IMG_SOCK_ERROR])
                        continue;
                f->arg[IMG_SOCK_PEER] = other;
                f->arg[IMG_SOCK_LISTENER] = find_tcp_listener(d, &f->path);
        }
        for (size_t i = 0; i < e.count && r == 0; i++)
                if (cop_dump_file_at(d, e.list[i].file)->arg[IMG_SOCK_PEER] != IMG_NONE)
                        cop_dump_file_at(d, e.list[i].file)->arg[IMG_SOCK_STATE] = IMG_SOCK_CONNECTED;
        free(e.list);
        return r;
}

static int get_queue_seq(int fd, int queue, uint32_t *ret)
{
        socklen_t length = sizeof(*ret);

        if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) < 0 ||
            getsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, ret, &length) < 0)
                return -errno;
        return 0;
}

/* What `fd` has sent and its peer has not acknowledged, up to *ret_end.  Fails with EFAULT when the buffer is too small. */
static ssize_t peek_sent(int fd, void *buf, size_t size, uint32_t *ret_end)
{
        int r = get_queue_seq(fd, TCP_SEND_QUEUE, ret_end);
        if (r < 0)
                return r;
        ssize_t n = recv(fd, buf, size, MSG_PEEK | MSG_DONTWAIT);
        return n < 0 ? -errno : n;
}

/* What `fd` has received, up to *ret_end.  The processes are stopped, the network is not: a segment may come any time, so
 * again until none came meanwhile.  The window is finite, so that this ends. */
static ssize_t peek_received(int fd, char **ret, uint32_t *ret_end)
{
        for (int tries = 0; tries < 1000; tries++) {
                uint32_t after = 0;
                int queued = 0;
                ssize_t n = 0;
                int r = get_queue_seq(fd, TCP_RECV_QUEUE, ret_end);
                if (r < 0)
                        return r;
                if (ioctl(fd, SIOCINQ, &queued) < 0)
                        return -errno;
                _cleanup_free_ char *buf = malloc((size_t)queued + 1);
                if (!buf)
                        return -ENOMEM;
                if (queued > 0 && (n = recv(fd, buf, (size_t)queued, MSG_PEEK | MSG_DONTWAIT)) < 0)
                        return -errno;
                r = get_queue_seq(fd, TCP_RECV_QUEUE, &after);
                if (r < 0)
                        return r;
                if (after == *ret_end) {
                        *ret = buf;
                        buf = NULL;
                        return n;
                }
        }
        return -EAGAIN;
}

/* The sender first: what it drops from its queue later is in the receiver's by then. */
static int dump_pair_queues(struct cop_dump *d, int from, int to, bool fin, uint32_t index)
{
        _cleanup_free_ char *sent = NULL, *received = NULL;
        uint32_t sent_end = 0, received_end = 0;
        ssize_t sent_n, received_n;
        int out = 0, no_queue = TCP_NO_QUEUE;

        if (ioctl(from, SIOCOUTQ, &out) < 0)
                return -errno;
        /* The first segment may have been acknowledged in part and is still there in full. */
        size_t size = (size_t)MAX_OF(out, 0) + (1UL << 20);
        sent = malloc(size);
        if (!sent)
                return -ENOMEM;
        sent_n = peek_sent(from, sent, size, &sent_end);
        /* While the send queue is chosen, segments would count as sent without being so. */
        (void)setsockopt(from, IPPROTO_TCP, TCP_REPAIR_QUEUE, &no_queue, sizeof(no_queue));
        if (sent_n < 0)
                return (int)sent_n;
        received_n = peek_received(to, &received, &received_end);
        if (received_n < 0)
                return (int)received_n;
        int missing = (int)(sent_end - fin - received_end); /* below 0 when the FIN has come */
        if (missing > sent_n)
                return -EIO;
        struct img_packet list[2];
        size_t n = 0;
        if (received_n > 0)
                list[n++] = (struct img_packet){.data = cop_image_put(d->writer, received, (size_t)received_n)};
        if (missing > 0)
                list[n++] = (struct img_packet){
                        .data = cop_image_put(d->writer, sent + (sent_n - missing), (size_t)missing)};
        cop_dump_put_queue(d, cop_dump_file_at(d, index), list, n);
        return 0;
}

int cop_dump_repair_begin(int fd, int *ret_reuse)
{
        int on = 1;

        *ret_reuse = get_int(fd, SO_REUSEADDR);
        return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) < 0 ? -errno : 0;
}

void cop_dump_repair_end(int fd, int reuse)
{
        int off = TCP_REPAIR_OFF_NO_WP, none = TCP_NO_QUEUE;

        (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &none, sizeof(none));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
}

int cop_dump_stream(struct cop_dump *d, int from, int to, bool fin, uint32_t index, struct cop_error *err)
{
        int out = 0, reuse[2] = {0};

        if (ioctl(from, SIOCOUTQ, &out) < 0 || out <= 0)
                return dump_tcp_queue(d, cop_dump_file_at(d, index), to, err); /* all of it is there */
        int r = cop_dump_repair_begin(from, &reuse[0]);
        if (r < 0)
                return cop_error_errno(err, -r, "entering TCP repair mode");
        r = cop_dump_repair_begin(to, &reuse[1]);
        if (r == 0) {
                r = dump_pair_queues(d, from, to, fin, index);
                cop_dump_repair_end(to, reuse[1]);
        }
        cop_dump_repair_end(from, reuse[0]);
        return r < 0 ? cop_error_errno(err, -r, "reading the queues of a TCP connection") : 0;
}

/* ---- who made it ---- */

/* A pid outlives its process in the sockets it made and the messages it sent, but only as a number of each pid namespace it was
 * in: that of the tree is asked for from within. */
static struct img_credentials *maker_of(struct cop_dump *d, const struct img_file *f)
{
        char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return f->kind == IMG_FILE_UNIX && f->peer.length ? (void *)(heap + f->peer.offset) : NULL;
}

/* The end at which it is seen: its own, or the one that was accepted to look at what it has sent. */
static int end_of(const struct cop_dump *d, uint32_t index)
{
        const struct cop_dump_file *known = cop_dump_known_socket(d, index);

        for (size_t i = 0; i < d->waiting_count; i++)
                if (d->waiting[i].file == index)
                        return d->waiting[i].fd;
        return known ? known->own_fd : -EBADF;
}

static int ask_inside(void *argument)
{
        struct cop_dump *d = argument;

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                int fd = f->kind == IMG_FILE_UNIX ? end_of(d, i) : -EBADF;
                struct img_credentials *c = maker_of(d, f);
                struct ucred who;
                socklen_t length = sizeof(who);
                if (fd >= 0 && c && c->pid == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
                        c->pid = who.pid;
                if (fd >= 0 && cop_dump_senders_unknown(d, f))
                        cop_dump_ask_senders(d, f, fd);
        }
        return 0;
}

static int ask_from_within(void *argument)
{
        const struct cop_dump *d = argument;

        return setns(d->tree.pidns_fd, CLONE_NEWPID) < 0 ? -errno : cop_child_call(0, ask_inside, argument);
}

static void find_makers(struct cop_dump *d)
{
        bool unknown = false;

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES) && !unknown; i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                const struct img_credentials *c = maker_of(d, f);
                unknown = (c && c->pid == 0) || (f->kind == IMG_FILE_UNIX && cop_dump_senders_unknown(d, f));
        }
        if (unknown)
                (void)cop_child_call(0, ask_from_within, d); /* without the right to they stay unknown */
}

/* Listeners first: they mark the pending ones. */
static int link_all_unix(struct cop_dump *d, struct cop_error *err)
{
        struct cop_unix_table t = {0};
        uint32_t n = cop_image_count(d->writer, IMG_FILES);
        bool any = false;
        int r = 0;

        for (uint32_t i = 0; i < n; i++)
                any = any || cop_dump_file_at(d, i)->kind == IMG_FILE_UNIX;
        if (any)
                r = cop_unix_table_collect(d->net_diag_fd, &t, err);
        for (int pass = 0; pass < 2 && r == 0; pass++)
                for (uint32_t i = 0; i < n; i++)
                        if (cop_dump_file_at(d, i)->kind == IMG_FILE_UNIX &&
                            (cop_dump_file_at(d, i)->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING) == (pass == 0))
                                r = r < 0 ? r : link_unix(d, &t, i, err);
        cop_unix_table_done(&t);
        return r;
}

/* To somewhere outside the tree: as other connections that leave it. */
static void link_connecting(struct cop_dump *d, uint32_t index)
{
        struct img_file *f = cop_dump_file_at(d, index);

        if (f->peer.length == 0 || find_tcp_listener(d, &f->peer) == IMG_NONE)
                f->arg[IMG_SOCK_STATE] = IMG_SOCK_CLOSED;
}

static int dump_received(struct cop_dump *d, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);
        const struct cop_dump_file *to = cop_dump_known_socket(d, index),
                                   *from = cop_dump_known_socket(d, (uint32_t)f->arg[IMG_SOCK_PEER]);

        if (!to || (!is_tcp(f, IMG_SOCK_CONNECTED) && !is_tcp(f, IMG_SOCK_CLOSED)))
                return 0;
        if (!from)
                return dump_tcp_queue(d, f, to->own_fd, err);
        bool fin = cop_dump_file_at(d, from->index)->arg[IMG_SOCK_SHUTDOWN] & 2;
        return cop_dump_stream(d, from->own_fd, to->own_fd, fin, index, err);
}

static int link_all_inet(struct cop_dump *d, struct cop_error *err)
{
        struct ends e = {0};
        int r = collect_ends(d, IMG_SOCK_CONNECTED, &e, err);

        for (uint32_t i = 0, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++) {
                if (is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTED))
                        r = link_inet(d, &e, i, err);
                else if (is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTING))
                        link_connecting(d, i);
        }
        free(e.list);
        return r;
}

static bool is_udp(const struct img_file *f)
{
        return f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_UDP;
}

/* Only sock_diag tells that one sends no more, while it still receives. */
static void find_udp_shutdown(struct cop_dump *d)
{
        struct cop_tcp_table t = {0};
        uint32_t n = cop_image_count(d->writer, IMG_FILES);
        bool any = false;

        for (uint32_t i = 0; i < n && !any; i++)
                any = is_udp(cop_dump_file_at(d, i));
        if (!any || cop_udp_table_collect(d->net_diag_fd, &t, NULL) < 0)
                t.count = 0;
        for (size_t k = 0; k < t.count; k++) {
                if (!t.list[k].shutdown)
                        continue;
                for (uint32_t i = 0; i < n; i++)
                        if (is_udp(cop_dump_file_at(d, i)) && cop_dump_file_at(d, i)->ino == t.list[k].ino)
                                cop_dump_file_at(d, i)->arg[IMG_SOCK_SHUTDOWN] = t.list[k].shutdown;
        }
        cop_tcp_table_done(&t);
}

int cop_dump_sockets_finish(struct cop_dump *d, struct cop_error *err)
{
        int r = link_all_unix(d, err);

        if (r == 0)
                r = cop_dump_tcp_waiting(d, false, err);
        if (r == 0)
                r = link_all_inet(d, err);
        for (uint32_t i = 0, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++)
                r = dump_received(d, i, err);
        if (r == 0)
                r = link_ended(d, err);
        if (r == 0) {
                find_udp_shutdown(d);
                find_makers(d);
        }
        return r;
}

/* The end of a connection that was taken for closed because its other end was not known yet. */
static int open_peers_again(struct cop_dump *d, uint32_t first, struct cop_error *err)
{
        struct ends e = {0};
        int r = collect_ends(d, IMG_SOCK_CLOSED, &e, err);

        for (uint32_t i = first, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++) {
                uint32_t other =
                        is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTED) ? find_other_end(d, &e, i) : IMG_NONE;
                if (other != IMG_NONE)
                        cop_dump_file_at(d, other)->arg[IMG_SOCK_STATE] = IMG_SOCK_CONNECTED;
        }
        free(e.list);
        return r;
}

int cop_dump_sockets_again(struct cop_dump *d, uint32_t first, struct cop_error *err)
{
        struct ends e = {0};
        int r = link_all_unix(d, err);

        if (r == 0)
                r = open_peers_again(d, first, err);
        if (r == 0)
                r = collect_ends(d, IMG_SOCK_CONNECTED, &e, err);
        for (uint32_t i = 0, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++) {
                if (!is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTED) ||
                    (i < first && cop_dump_file_at(d, i)->arg[IMG_SOCK_PEER] != IMG_NONE))
                        continue;
                r = link_inet(d, &e, i, err);
                if (r == 0)
                        r = dump_received(d, i, err);
        }
        free(e.list);
        if (r == 0)
                find_makers(d);
        return r;
}
