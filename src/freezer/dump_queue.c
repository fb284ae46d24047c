/* What is queued in sockets, read with MSG_PEEK message by message.
 *
 * Steps.  SO_PEEK_OFF makes a peek begin where the last one ended.  For streams a message is what one peek gives: a peek joins
 * what came before a message with descriptors to it, a read does not, so that must be undone.
 *
 * Empty messages, of datagram and seqpacket sockets.  A peek with an offset gives one once and leaves it out ever after, as it does when
 * a peek without an offset has found it first, also in the next freeze of a tree that runs on.  That one has the queue as it was then in
 * its parent image: what is missing is filled in from there.  At the end of a seqpacket connection nothing is read as if it were empty
 * messages without end.
 *
 * Errors.  One that waits is told by the next call and gone then, also by a peek: of a stream behind what is queued, of others before
 * it.  So nothing is asked for beyond what is known to be there; only datagrams behind an error cost a tree that runs on the error.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/rights.h"
#include "freezer/dump_sock.h"

struct queue {
        struct img_packet *list; /* owned */
        size_t n;
        size_t bytes;      /* what is there of a stream */
        int urgent;        /* the byte of a stream that was sent with MSG_OOB and is not taken yet; -1: there is none */
        bool urgent_first; /* it is what comes next */
        bool in_line;      /* SO_OOBINLINE as it was */
        size_t urgent_at;  /* packet that begins with it, SIZE_MAX: not found */
};

static int queue_add(struct queue *q, const struct img_packet *p)
{
        struct img_packet *bigger = reallocarray(q->list, q->n + 1, sizeof(*bigger));

        if (!bigger)
                return -ENOMEM;
        q->list = bigger;
        q->list[q->n++] = *p;
        return 0;
}

/* ---- descriptors in flight ---- */

/* What a thaw has not yet when it fills queues: processes and the files of sockets. */
static bool is_late(struct cop_dump *d, uint32_t file)
{
        const struct img_file *f = cop_image_record(d->writer, IMG_FILES, file);

        return f->kind == IMG_FILE_PIDFD || f->kind == IMG_FILE_PROC ||
               (f->kind == IMG_FILE_DEVICE && f->arg[0] == makedev(5, 0)) ||
               (f->kind == IMG_FILE_DIRECTORY && S_ISSOCK(f->arg[1]));
}

/* They are files of the image like any other. */
static int dump_rights(struct cop_dump *d, struct msghdr *m, struct img_packet *p, const struct cop_dump_file *known,
                       struct cop_error *err)
{
        const struct cmsghdr *c = cop_rights_find(m);
        size_t n = c ? cop_rights_count(c) : 0;
        const int *list = c ? (const int *)(const void *)CMSG_DATA(c) : NULL;
        uint32_t files[COP_RIGHTS_MAX];
        int r = 0;

        for (size_t i = 0; i < n; i++) {
                int file = r == 0 ? cop_dump_own_fd(d, known->proc, list[i], err) : -1;
                if (r == 0 && file < 0)
                        r = file;
                if (file >= 0 && i < COP_RIGHTS_MAX)
                        files[i] = (uint32_t)file;
                close(list[i]);
        }
        for (size_t i = 0; i < MIN_OF(n, COP_RIGHTS_MAX) && r == 0; i++)
                if (is_late(d, files[i]))
                        r = cop_not_freezable(d, known->proc, err,
                                              "has a pidfd or a file of /proc, /dev/tty or a socket in flight (fd %d)",
                                              known->fd);
        if (r == 0 && (m->msg_flags & MSG_CTRUNC || n > COP_RIGHTS_MAX))
                r = cop_not_freezable(d, known->proc, err, "has too many descriptors in flight (fd %d)", known->fd);
        if (r == 0)
                p->files = cop_image_put(d->writer, files, n * sizeof(files[0]));
        return r;
}

static void discard_rights(struct msghdr *m)
{
        const struct cmsghdr *c = cop_rights_find(m);

        for (size_t i = 0; i < cop_rights_count(c); i++)
                close(((const int *)(const void *)CMSG_DATA(c))[i]);
}

/* The last byte of what a peek gave goes to an address that is not there: the message it belongs to is left out, with its
 * descriptors. */
static ssize_t peek_before_rights(int fd, size_t at, char *buf, size_t got)
{
        struct iovec iov[] = {{.iov_base = buf, .iov_len = got - 1}, {.iov_base = NULL, .iov_len = 1}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = ELEMENTSOF(iov)};
        int off = (int)at;

        if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)) < 0)
                return -errno;
        ssize_t before = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (before <= 0) /* for the peek of the message itself */
                (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));
        return before;
}

/* ---- credentials ---- */

struct img_ref cop_dump_credentials(struct cop_dump *d, const struct ucred *who)
{
        struct img_credentials c = {.pid = who->pid > 0 ? cop_pid_inside(d->tree.pidns_fd, who->pid) : 0,
                                    .uid = cop_dump_uid(d, who->uid),
                                    .gid = cop_dump_gid(d, who->gid)};

        return who->pid > 0 ? cop_image_put(d->writer, &c, sizeof(c)) : (struct img_ref){0};
}

bool cop_dump_get_credentials(struct msghdr *m, struct ucred *ret)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
                    c->cmsg_len >= CMSG_LEN(sizeof(*ret))) {
                        memcpy(ret, CMSG_DATA(c), sizeof(*ret));
                        return true;
                }
        return false;
}

static struct img_credentials *credentials_of(struct cop_dump *d, uint32_t packet)
{
        const struct img_packet *p = cop_image_record(d->writer, IMG_PACKETS, packet);
        char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return p && p->credentials.length ? (void *)(heap + p->credentials.offset) : NULL;
}

bool cop_dump_senders_unknown(struct cop_dump *d, const struct img_file *f)
{
        for (uint32_t i = 0; i < f->packets; i++) {
                const struct img_credentials *c = credentials_of(d, f->first_packet + i);
                if (c && c->pid == 0)
                        return true;
        }
        return false;
}

void cop_dump_ask_senders(struct cop_dump *d, const struct img_file *f, int fd)
{
        int off = 0, old = -1, on = 1, pass = 0;
        socklen_t length = sizeof(int);

        (void)getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &old, &length);
        (void)getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &pass, &length);
        (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
        for (uint32_t i = 0; i < f->packets; i++) {
                /* Room for credentials only: descriptors that come along are not taken. */
                char byte, control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
                struct iovec iov = {.iov_base = &byte, .iov_len = 1};
                struct msghdr m = {
                        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
                struct img_credentials *c = credentials_of(d, f->first_packet + i);
                const struct img_packet *p = cop_image_record(d->writer, IMG_PACKETS, f->first_packet + i);
                struct ucred who;
                if (c && c->pid == 0 && p->data.length > 0 &&
                    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)) == 0 &&
                    recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT) > 0 && cop_dump_get_credentials(&m, &who))
                        c->pid = who.pid;
                off += (int)p->data.length;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &old, sizeof(old));
        (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &pass, sizeof(pass));
}

static struct img_ref dump_sender(struct cop_dump *d, struct msghdr *m)
{
        struct ucred who;

        return cop_dump_get_credentials(m, &who) ? cop_dump_credentials(d, &who) : (struct img_ref){0};
}

/* ---- empty messages ---- */

static const struct img_file *find_in_parent(const struct cop_dump *d, const struct img_file *f)
{
        const struct cop_image *im = d->parent;
        struct timespec now, up;

        clock_gettime(CLOCK_REALTIME, &now);
        clock_gettime(CLOCK_BOOTTIME, &up);
        /* Inode numbers of sockets begin anew with each boot. */
        if (!im || im->header->created / 1000000 <= (uint64_t)(now.tv_sec - up.tv_sec))
                return NULL;
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++) {
                const struct img_file *g = IMG_RECORD(im, IMG_FILES, img_file, i);
                if (g->kind == f->kind && g->ino == f->ino && g->dev == f->dev &&
                    g->arg[IMG_SOCK_TYPE] == f->arg[IMG_SOCK_TYPE])
                        return g;
        }
        return NULL;
}

static bool same_blob(struct cop_dump *d, const struct img_ref *ours, const struct img_ref *parents)
{
        const char *heap = cop_image_record(d->writer, IMG_HEAP, 0);

        return ours->length == parents->length &&
               (ours->length == 0 || memcmp(heap + ours->offset, cop_image_at(d->parent, parents), ours->length) == 0);
}

/* Whether what is not empty of the parent's queue from `first` on begins what is queued now. */
static bool begins(struct cop_dump *d, const struct queue *q, const struct img_packet *old, size_t first, size_t n)
{
        size_t at = 0;

        for (size_t i = first; i < n; i++) {
                if (old[i].data.length == 0)
                        continue;
                if (at == q->n || !same_blob(d, &q->list[at].data, &old[i].data) ||
                    !same_blob(d, &q->list[at].address, &old[i].address))
                        return false;
                at++;
        }
        return true;
}

/* `empty_first`: the first message of the queue is empty. */
static int add_empty(struct cop_dump *d, const struct img_file *f, struct queue *q, bool empty_first)
{
        const struct img_file *g = find_in_parent(d, f);
        const struct img_packet *old = g ? IMG_RECORD(d->parent, IMG_PACKETS, img_packet, g->first_packet) : NULL;
        size_t n = g ? g->packets : 0, first = 0, at = 0;
        struct queue both = {.urgent_at = SIZE_MAX};
        int r = 0;

        while (first < n && ((old[first].data.length == 0) != empty_first || !begins(d, q, old, first, n)))
                first++;
        for (size_t i = first; i < n && r == 0; i++) {
                struct img_packet p = {0};
                if (old[i].data.length == 0)
                        p.address = cop_image_put(d->writer, cop_image_at(d->parent, &old[i].address),
                                                  old[i].address.length);
                else if (at < q->n)
                        p = q->list[at++];
                r = queue_add(&both, &p);
        }
        for (; at < q->n && r == 0; at++)
                r = queue_add(&both, &q->list[at]);
        if (r < 0) {
                free(both.list);
                return r;
        }
        free(q->list);
        *q = both;
        return 0;
}

/* ---- urgent data ---- */

static void set_inline(int fd, int on)
{
        (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

/* Only in line a peek gives it also when it is what comes next; not in line it is told apart. */
static void find_urgent(const struct img_file *f, int fd, struct queue *q)
{
        int in_line = 0, at_mark = 0;
        unsigned char byte;
        socklen_t length = sizeof(in_line);

        q->urgent = -1;
        q->urgent_at = SIZE_MAX;
        if (f->kind != IMG_FILE_UNIX || f->arg[IMG_SOCK_TYPE] != SOCK_STREAM)
                return;
        (void)getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, &length);
        q->in_line = in_line;
        if (in_line)
                set_inline(fd, 0);
        if (recv(fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) == 1)
                q->urgent = byte;
        q->urgent_first = q->urgent >= 0 && ioctl(fd, SIOCATMARK, &at_mark) == 0 && at_mark;
        if (in_line || q->urgent >= 0)
                set_inline(fd, 1);
}

/* A peek ends before it, and the next one begins with it. */
static int split_urgent(struct queue *q)
{
        if (q->urgent_at >= q->n)
                return 0;
        struct img_packet rest = q->list[q->urgent_at];
        rest.data.offset++;
        rest.data.length--;
        rest.files = (struct img_ref){0};
        q->list[q->urgent_at].data.length = 1;
        q->list[q->urgent_at].flags = IMG_PACKET_URGENT;
        if (rest.data.length == 0)
                return 0;
        int r = queue_add(q, &rest);
        for (size_t i = q->n - 1; r == 0 && i > q->urgent_at + 1; i--) {
                struct img_packet later = q->list[i];
                q->list[i] = q->list[i - 1];
                q->list[i - 1] = later;
        }
        return r;
}

/* ---- all of it ---- */

/* When all has been peeked at; without an offset. */
static bool begins_empty(int fd, int type, const struct queue *q)
{
        char byte;

        return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC) == 0 &&
               (type == SOCK_DGRAM || q->bytes > 0 || !cop_dump_hung_up(fd));
}

static int peek_queue(struct cop_dump *d, const struct cop_dump_file *known, int fd, int type, bool steps,
                      struct queue *q, struct cop_error *err)
{
        size_t size = 1UL << 18, total = 0;
        _cleanup_free_ char *buf = malloc(size);
        bool stream = type == SOCK_STREAM, ended = q->urgent_first;

        if (!buf)
                return cop_error_errno(err, ENOMEM, "reading a socket's queue");
        while (!stream || total < q->bytes) {
                struct sockaddr_storage address;
                char control[COP_RIGHTS_SPACE(COP_RIGHTS_MAX) + CMSG_SPACE(sizeof(struct ucred))]
                        __attribute__((aligned(8)));
                struct iovec iov = {.iov_base = buf, .iov_len = size};
                struct msghdr m = {.msg_name = &address,
                                   .msg_namelen = sizeof(address),
                                   .msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof(control)};
                ssize_t got = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC * !stream | MSG_CMSG_CLOEXEC);
                if (got < 0 ||
                    (got == 0 && (stream || (type == SOCK_SEQPACKET && total >= q->bytes && cop_dump_hung_up(fd)))))
                        return 0;
                struct img_packet p = {.credentials = dump_sender(d, &m)};
                if (stream && steps && cop_rights_find(&m) && got > 1) {
                        discard_rights(&m);
                        ssize_t before = peek_before_rights(fd, total, buf, (size_t)got);
                        m.msg_controllen = before > 0 ? 0 : sizeof(control);
                        got = before > 0 ? before : recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                        if (got <= 0)
                                return 0;
                }
                if ((size_t)got > size || total + (size_t)got > COP_SOCKET_QUEUE_MAX) {
                        discard_rights(&m);
                        return cop_not_freezable(d, known->proc, err, "has a too large message queued (fd %d)",
                                                 known->fd);
                }
                p.data = cop_image_put(d->writer, buf, (size_t)got);
                if (!stream && m.msg_namelen > sizeof(sa_family_t))
                        p.address = cop_image_put(d->writer, &address, m.msg_namelen);
                if (ended && got > 0 && (unsigned char)buf[0] == q->urgent && !cop_rights_find(&m))
                        q->urgent_at = q->n;
                ended = (size_t)got < size; /* before something that is not read with it */
                int r = dump_rights(d, &m, &p, known, err);
                if (r < 0)
                        return r;
                if (queue_add(q, &p) < 0)
                        return cop_error_errno(err, ENOMEM, "reading a socket's queue");
                total += (size_t)got;
                if (!steps) /* one peek is all there is to have */
                        return 0;
        }
        return 0;
}

/* Whether there is nothing but an error, or nothing that can be had without taking it; recorded as far as it can be made again. */
static bool only_error(struct img_file *f, int fd, int queued)
{
        struct pollfd p = {.fd = fd};
        bool datagram = f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM;
        int error;
        socklen_t length = sizeof(error);

        if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLERR))
                return false;
        if (f->kind == IMG_FILE_INET || !datagram)
                f->arg[IMG_SOCK_ERROR] = f->kind == IMG_FILE_UNIX ? ECONNRESET : ECONNREFUSED;
        if (f->arg[IMG_SOCK_TYPE] == SOCK_STREAM)
                return false;
        if (queued > 0)
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
        return queued <= 0;
}

void cop_dump_put_queue(struct cop_dump *d, struct img_file *f, const struct img_packet *list, size_t n)
{
        f->first_packet = cop_image_count(d->writer, IMG_PACKETS);
        f->packets = (uint32_t)n;
        for (size_t i = 0; i < n; i++)
                cop_image_add(d->writer, IMG_PACKETS, &list[i]);
}

int cop_dump_queue(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                   struct cop_error *err)
{
        int type = (int)f->arg[IMG_SOCK_TYPE], off = 0, none = -1, old = -1, on = 1, pass = 1, queued = 0;
        socklen_t length = sizeof(old);
        struct queue q = {0};
        bool stream = type == SOCK_STREAM;

        (void)ioctl(fd, SIOCINQ, &queued);
        if (only_error(f, fd, queued))
                return 0;
        q.bytes = (size_t)MAX_OF(queued, 0);
        find_urgent(f, fd, &q);
        (void)getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &old, &length);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
        if (f->kind == IMG_FILE_UNIX && getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &pass, &length) == 0 && !pass)
                (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
        bool steps = setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)) == 0;
        int r = peek_queue(d, known, fd, type, steps, &q, err);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
        bool empty_first = !stream && begins_empty(fd, type, &q);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &old, sizeof(old));
        if (!pass)
                (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &pass, sizeof(pass));
        if (q.urgent >= 0)
                set_inline(fd, q.in_line);
        if (r == 0 && ((!stream && add_empty(d, f, &q, empty_first) < 0) || split_urgent(&q) < 0))
                r = cop_error_errno(err, ENOMEM, "reading a socket's queue");
        if (r == 0)
                cop_dump_put_queue(d, f, q.list, q.n);
        free(q.list);
        return r;
}
