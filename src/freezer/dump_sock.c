/* Sockets.
 *
 * Theory of operation.  Unix sockets tell by unix_diag who is connected to whom (inodes).  Queues are read with MSG_PEEK.
 * TCP is in dump_tcp.c.
 *
 * The first pass (cop_dump_socket) records each by itself; the second, when all are known, finds peers and listeners.
 */
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/child_call.h"
#include "freezer/dump_sock.h"

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

unsigned cop_dump_hung_up(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) <= 0 ? 0 : p.revents & POLLHUP ? 3 : p.revents & POLLRDHUP ? 1 : 0;
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
        if (f->arg[IMG_SOCK_TYPE] == SOCK_STREAM && f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_TCP) {
                add_peer_name(d, f, fd);
                return cop_dump_tcp(f, fd, err);
        }
        if (f->arg[IMG_SOCK_TYPE] == SOCK_RAW || cop_socket_is_echo(f)) {
                add_peer_name(d, f, fd);
                f->arg[IMG_SOCK_SHUTDOWN] = cop_dump_hung_up(fd);
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
        f->arg[IMG_SOCK_SHUTDOWN] = cop_dump_hung_up(fd);
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

int cop_dump_new_socket(const struct cop_dump *d, int family, int type, int protocol, struct cop_error *err)
{
        struct cop_visit visit;
        int r = cop_dump_enter(d, "net", CLONE_NEWNET, &visit, err);

        if (r < 0)
                return r;
        _cleanup_close_ int fd = socket(family, type | SOCK_CLOEXEC, protocol);
        if (fd < 0)
                r = cop_error_errno(err, errno, "making a socket in the tree's network");
        int left = cop_dump_leave(&visit, r < 0 ? NULL : err);
        return r < 0 ? r : left < 0 ? left : TAKE_FD(fd);
}

struct cop_dump_file *cop_dump_known_socket(const struct cop_dump *d, uint32_t index)
{
        struct cop_dump_file *known = cop_dump_known_index(d, index);

        return known && !known->mapping ? known : NULL;
}

static void link_unix(struct cop_dump *d, const struct cop_unix_table *t, uint32_t index)
{
        struct img_file *f = cop_dump_file_at(d, index);
        const struct cop_unix_info *u = cop_unix_table_find(t, f->ino);

        if (!u)
                return;
        f->arg[IMG_SOCK_SHUTDOWN] = u->shutdown;
        if (f->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING) {
                f->arg[IMG_SOCK_BACKLOG] = u->backlog;
                cop_dump_unix_waiting(d, t, index);
                return;
        }
        if (cop_socket_waits(f->arg[IMG_SOCK_STATE]))
                return;
        bool connected = u->state == TCP_ESTABLISHED;
        uint32_t peer = u->peer ? cop_dump_unix_socket(d, f, u->peer) : IMG_NONE;
        if (f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM) {
                f->arg[IMG_SOCK_PEER] = peer;
                if (peer != IMG_NONE)
                        f->arg[IMG_SOCK_ERROR] = 0;
                return;
        }
        if (!connected)
                return;
        f->arg[IMG_SOCK_STATE] = peer == IMG_NONE ? IMG_SOCK_CLOSED : IMG_SOCK_CONNECTED;
        f->arg[IMG_SOCK_PEER] = peer;
        f->arg[IMG_SOCK_LISTENER] = find_listener(d, index);
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

struct inside {
        int pidns_fd;
        int (*call)(void *argument);
        void *argument;
};

static int go_inside(void *argument)
{
        const struct inside *i = argument;

        return setns(i->pidns_fd, CLONE_NEWPID) < 0 ? -errno : cop_child_call(0, i->call, i->argument);
}

int cop_dump_inside(const struct cop_dump *d, int (*call)(void *argument), void *argument)
{
        struct inside i = {.pidns_fd = d->tree.pidns_fd, .call = call, .argument = argument};

        return cop_child_call(0, go_inside, &i);
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
                (void)cop_dump_inside(d, ask_inside, d); /* without the right to they stay unknown */
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
                                link_unix(d, &t, i);
        cop_unix_table_done(&t);
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
                r = cop_dump_tcp_link(d, err);
        if (r == 0) {
                find_udp_shutdown(d);
                find_makers(d);
        }
        return r;
}

int cop_dump_sockets_again(struct cop_dump *d, uint32_t first, struct cop_error *err)
{
        int r = link_all_unix(d, err);

        if (r == 0)
                r = cop_dump_tcp_link_again(d, first, err);
        if (r == 0) {
                find_udp_shutdown(d);
                find_makers(d);
        }
        return r;
}
