/* What is queued in TCP connections.
 *
 * Bytes that the sender still holds and the receiver has not yet seen are read from the send queue in TCP_REPAIR mode and count as
 * received.
 *
 * Urgent data (MSG_OOB) is one byte of the stream.  Other reads end before it and leave it out, unless it is asked for in line; then
 * they begin with it.  So the queue is looked at in line, in two steps.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "freezer/dump_sock.h"

/* ---- received ---- */

struct received {
        char *data; /* owned */
        size_t count;
        size_t mark;     /* where the urgent byte is; `count`: nowhere */
        uint32_t urgent; /* enum img_packet_flags */
};

static int set_inline(int fd, int on)
{
        return setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* How much a read can have, in line or up to the urgent byte. */
static int count_queued(int fd, int in_line)
{
        int queued = 0, r = set_inline(fd, in_line);

        if (r < 0)
                return r;
        return ioctl(fd, SIOCINQ, &queued) < 0 ? 0 : queued;
}

/* The rest, from the urgent byte on. */
static int peek_rest(int fd, size_t all, struct received *ret)
{
        int at = (int)ret->count;

        if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at)) < 0)
                return -errno;
        ssize_t n = recv(fd, ret->data + ret->count, all - ret->count, MSG_PEEK | MSG_DONTWAIT);
        if (n <= 0)
                return n < 0 ? -errno : -EIO;
        ret->count += (size_t)n;
        return 0;
}

static int peek_in_line(int fd, size_t before, size_t all, struct received *ret)
{
        char byte;
        bool marked = before < all;
        /* In line nobody is told whether it was taken. */
        bool taken = marked && recv(fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) != 1;
        int r = set_inline(fd, 1);

        ret->data = malloc(all + 1);
        if (!ret->data || r < 0)
                return r < 0 ? r : -ENOMEM;
        ssize_t n = before > 0 ? recv(fd, ret->data, before, MSG_PEEK | MSG_DONTWAIT) : 0;
        if (n < 0)
                return errno == ENOTCONN ? 0 : -errno;
        ret->count = ret->mark = (size_t)n;
        if (!marked)
                return 0;
        ret->urgent = IMG_PACKET_URGENT | (taken ? IMG_PACKET_TAKEN : 0U);
        return peek_rest(fd, all, ret);
}

static int peek_all(int fd, struct received *ret)
{
        int in_line = 0, peek = -1, none = -1;
        socklen_t length = sizeof(int);

        (void)getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, &length);
        (void)getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &peek, &length);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
        int all = count_queued(fd, 1), before = count_queued(fd, 0);
        int r = all < 0 ? all : before < 0 ? before : 0;
        if (r == 0 && all > 0) /* what has come in between is not beyond an urgent byte */
                r = peek_in_line(fd, (size_t)before, (size_t)MAX_OF(all, before), ret);
        (void)set_inline(fd, in_line);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &peek, sizeof(peek));
        return r;
}

/* `missing` bytes more are on their way. */
static void put_received(struct cop_dump *d, uint32_t index, const struct received *got, const char *more,
                         size_t missing)
{
        struct img_packet list[4];
        size_t n = 0, mark = got->urgent ? got->mark : got->count;

        if (mark > 0)
                list[n++] = (struct img_packet){.data = cop_image_put(d->writer, got->data, mark)};
        if (got->urgent)
                list[n++] = (struct img_packet){.data = cop_image_put(d->writer, got->data + mark, 1),
                                                .flags = got->urgent};
        if (got->count > mark + 1)
                list[n++] = (struct img_packet){
                        .data = cop_image_put(d->writer, got->data + mark + 1, got->count - mark - 1)};
        if (missing > 0)
                list[n++] = (struct img_packet){.data = cop_image_put(d->writer, more, missing)};
        if (n > 0)
                cop_dump_put_queue(d, cop_dump_file_at(d, index), list, n);
}

int cop_dump_received(struct cop_dump *d, int fd, uint32_t index, struct cop_error *err)
{
        struct received got = {0};
        int r = peek_all(fd, &got);

        if (r == 0)
                put_received(d, index, &got, NULL, 0);
        free(got.data);
        return r < 0 ? cop_error_errno(err, -r, "reading a socket's queue") : 0;
}

/* ---- and on its way ---- */

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
static int peek_received(int fd, struct received *ret, uint32_t *ret_end)
{
        for (int tries = 0; tries < 1000; tries++) {
                struct received got = {0};
                uint32_t after = 0;
                int r = get_queue_seq(fd, TCP_RECV_QUEUE, ret_end);
                if (r == 0)
                        r = peek_all(fd, &got);
                if (r == 0)
                        r = get_queue_seq(fd, TCP_RECV_QUEUE, &after);
                if (r == 0 && after == *ret_end) {
                        *ret = got;
                        return 0;
                }
                free(got.data);
                if (r < 0)
                        return r;
        }
        return -EAGAIN;
}

/* The sender first: what it drops from its queue later is in the receiver's by then. */
static int dump_pair_queues(struct cop_dump *d, int from, int to, bool fin, uint32_t index)
{
        _cleanup_free_ char *sent = NULL;
        struct received got = {0};
        uint32_t sent_end = 0, received_end = 0;
        int out = 0, no_queue = TCP_NO_QUEUE;

        if (ioctl(from, SIOCOUTQ, &out) < 0)
                return -errno;
        /* The first segment may have been acknowledged in part and is still there in full. */
        size_t size = (size_t)MAX_OF(out, 0) + (1UL << 20);
        sent = malloc(size);
        if (!sent)
                return -ENOMEM;
        ssize_t sent_n = peek_sent(from, sent, size, &sent_end);
        /* While the send queue is chosen, segments would count as sent without being so. */
        (void)setsockopt(from, IPPROTO_TCP, TCP_REPAIR_QUEUE, &no_queue, sizeof(no_queue));
        if (sent_n < 0)
                return (int)sent_n;
        int r = peek_received(to, &got, &received_end);
        if (r < 0)
                return r;
        int missing = (int)(sent_end - fin - received_end); /* below 0 when the FIN has come */
        if (missing <= sent_n)
                put_received(d, index, &got, sent + (sent_n - MAX_OF(missing, 0)), (size_t)MAX_OF(missing, 0));
        free(got.data);
        return missing > sent_n ? -EIO : 0;
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
                return cop_dump_received(d, to, index, err); /* all of it is there */
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
