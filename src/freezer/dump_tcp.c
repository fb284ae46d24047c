/* TCP sockets.
 *
 * Theory of operation.  The ends of a connection within the tree are matched by their addresses.  At thaw a real connection is made
 * between the two and what was queued is written into it (dump_stream.c), so no sequence number has to be saved.  An end whose peer is
 * outside the tree becomes one that was closed by the peer.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
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
        struct cop_tcp_table served; /* owned; what nobody in the tree has, asked for when it is needed */
        bool asked;
};

static void ends_done(struct ends *e)
{
        free(e->list);
        cop_tcp_table_done(&e->served);
}

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

static bool same_address(const struct sockaddr_in6 *a, const struct in6_addr *address, uint16_t port)
{
        return a->sin6_port == port && memcmp(&a->sin6_addr, address, sizeof(*address)) == 0;
}

/* Whether the other end is on this machine, and nobody's. */
static bool is_served(struct cop_dump *d, struct ends *e, uint32_t index)
{
        struct end own;

        if (!e->asked && cop_tcp_table_collect_served(d->net_diag_fd, &e->served, NULL) < 0)
                e->served.count = 0;
        e->asked = true;
        for (size_t i = 0; get_end(d, index, &own) && i < e->served.count; i++) {
                const struct cop_tcp_info *t = &e->served.list[i];
                if (t->ino == 0 && same_address(&t->local, &own.key.to_address, own.key.to_port) &&
                    same_address(&t->remote, &own.key.own_address, own.key.own_port))
                        return true;
        }
        return false;
}

/* A client whose other end is nobody's descriptor may wait at a listener of the tree. */
static int find_waiting(struct cop_dump *d, struct ends *e, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);
        struct cop_dump_file *known = cop_dump_known_socket(d, index);
        uint32_t listener = f->peer.length > sizeof(sa_family_t) ? find_tcp_listener(d, &f->peer) : IMG_NONE;
        struct tcp_info info = {0};
        socklen_t length = sizeof(info);

        if (listener == IMG_NONE || !known || known->own_fd < 0 ||
            getsockopt(known->own_fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 ||
            info.tcpi_state != TCP_ESTABLISHED || !is_served(d, e, index))
                return 0;
        if (info.tcpi_bytes_acked > 1 || info.tcpi_notsent_bytes > 0 || info.tcpi_unacked > 0)
                return cop_not_freezable(d, known->proc, err,
                                         "has sent data into a connection that is not accepted yet (fd %d)", known->fd);
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_PENDING;
        f->arg[IMG_SOCK_LISTENER] = listener;
        return 0;
}

static int link_inet(struct cop_dump *d, struct ends *e, uint32_t index, struct cop_error *err)
{
        struct img_file *f = cop_dump_file_at(d, index);

        if (f->arg[IMG_SOCK_STATE] != IMG_SOCK_CONNECTED)
                return 0;
        f->arg[IMG_SOCK_PEER] = find_other_end(d, e, index);
        f->arg[IMG_SOCK_LISTENER] = find_tcp_listener(d, &f->path);
        if (f->arg[IMG_SOCK_PEER] != IMG_NONE)
                return 0;
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_CLOSED;
        return find_waiting(d, e, index, err);
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
        ends_done(&e);
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
                return cop_dump_received(d, to->own_fd, index, err);
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
        ends_done(&e);
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
        ends_done(&e);
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
        ends_done(&e);
        return r;
}
