/* TCP sockets.
 *
 * Theory of operation.  The ends of a connection within the tree are matched by their addresses.  Bytes that the sender still
 * holds and the receiver has not yet seen are read from the send queue in TCP_REPAIR mode and count as received: at thaw a
 * real connection is made between the two ends and the queue is written into it, so no sequence number has to be saved.
 * An end whose peer is outside the tree becomes one that was closed by the peer.
 */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "freezer/dump_sock.h"

/* ---- each by itself ---- */

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

int cop_dump_tcp(struct img_file *f, int fd, struct cop_error *err)
{
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
                return cop_error_errno(err, errno, "reading the state of a TCP socket");
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
        socklen_t length = sizeof(*ret_reuse);

        if (getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, ret_reuse, &length) < 0)
                return -errno;
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

/* ---- both ends of a connection ---- */

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

int cop_dump_tcp_link(struct cop_dump *d, struct cop_error *err)
{
        struct ends e = {0};
        uint32_t n = cop_image_count(d->writer, IMG_FILES);
        int r = collect_ends(d, IMG_SOCK_CONNECTED, &e, err);

        for (uint32_t i = 0; i < n && r == 0; i++) {
                if (is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTED))
                        r = link_inet(d, &e, i, err);
                else if (is_tcp(cop_dump_file_at(d, i), IMG_SOCK_CONNECTING))
                        link_connecting(d, i);
        }
        free(e.list);
        for (uint32_t i = 0; i < n && r == 0; i++)
                r = dump_received(d, i, err);
        return r < 0 ? r : link_ended(d, err);
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

int cop_dump_tcp_link_again(struct cop_dump *d, uint32_t first, struct cop_error *err)
{
        struct ends e = {0};
        int r = open_peers_again(d, first, err);

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
        return r;
}
