/* Theory of operation
 *
 * The socket directory is written by the sandbox.  A name in it may be a link to a socket of the host, a FIFO, or may be
 * exchanged between two looks.  So each name is opened once with O_PATH beneath the directory without following links, and
 * checked to be a socket; the descriptor pins that inode, and libzmq is given ipc:///proc/self/fd/N, a link of procfs that
 * leads to the pinned inode whatever happens to the name.  The descriptor stays open as long as the zmq socket: libzmq
 * resolves the endpoint again whenever it reconnects, and N must not name something else then.
 *
 * LINGER 0: closing never waits.  RCVHWM 0 on iopub: the default of 1000 messages makes the kernel's side drop, the final
 * `idle` too, unless it was told to wait (bounded).  RECONNECT_IVL 5 ms: the file appears at bind(), an instant before listen().
 * HANDSHAKE_IVL 0: a kernel that was thawed ahead answers when it is let go, which may be minutes later; how long an answer may take is
 * the caller's part.
 */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define NAME_MAX_LEN 64
#define BOUNDED_MESSAGES 64 /* of at most 256 KiB each, as coppice_kernel sends streams */

static const struct {
        const char *name;
        int port; /* as in the connection file: notes/jupyter.md 1.1 */
        int type;
} kinds[COP_CHANNEL__MAX] = {
        [COP_CHANNEL_SHELL] = {"shell", 1, ZMQ_DEALER},
        [COP_CHANNEL_IOPUB] = {"iopub", 2, ZMQ_SUB},
        [COP_CHANNEL_STDIN] = {"stdin", 3, ZMQ_DEALER},
        [COP_CHANNEL_CONTROL] = {"control", 4, ZMQ_DEALER},
};

static int open_socket_file(int dir_fd, const char *base, enum cop_channel_kind kind, int *ret_fd,
                            struct cop_error *err)
{
        char name[NAME_MAX_LEN + 8];
        struct stat st;

        int n = snprintf(name, sizeof(name), "%s-%d", base, kinds[kind].port);
        if (n < 0 || (size_t)n >= sizeof(name))
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_bad_request, "socket name %.20s… is too long", base);
        _cleanup_close_ int fd = cop_open_beneath(dir_fd, name, O_PATH | O_NOFOLLOW, 0, 1, err);
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "fstat %s", name);
        if (!S_ISSOCK(st.st_mode))
                return cop_error_set(err, ENOTSOCK, COP_ERR_kernel_start_failed,
                                     "%s in the kernel's directory is no socket", name);
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int set_int(void *socket, int option, int value)
{
        return zmq_setsockopt(socket, option, &value, sizeof(value));
}

static int configure(struct cop_channel *c, enum cop_channel_kind kind, const struct cop_channel_options *o)
{
        int64_t frame_max = COP_CHANNEL_FRAME_MAX;
        int r = set_int(c->socket, ZMQ_LINGER, 0);

        r |= set_int(c->socket, ZMQ_RECONNECT_IVL, 5);
        r |= set_int(c->socket, ZMQ_RECONNECT_IVL_MAX, 1000);
        r |= set_int(c->socket, ZMQ_HANDSHAKE_IVL, 0);
        r |= zmq_setsockopt(c->socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof(frame_max));
        if (kind == COP_CHANNEL_IOPUB) {
                r |= set_int(c->socket, ZMQ_RCVHWM, o->bounded ? BOUNDED_MESSAGES : 0);
                r |= zmq_setsockopt(c->socket, ZMQ_SUBSCRIBE, "", 0);
        } else {
                r |= zmq_setsockopt(c->socket, ZMQ_ROUTING_ID, o->routing_id, strlen(o->routing_id));
        }
        return r;
}

static int monitor_open(void *zmq, struct cop_channel *c)
{
        char endpoint[64];

        snprintf(endpoint, sizeof(endpoint), "inproc://monitor-%p", c->socket);
        if (zmq_socket_monitor(c->socket, endpoint, ZMQ_EVENT_DISCONNECTED) < 0)
                return -1;
        c->monitor = zmq_socket(zmq, ZMQ_PAIR);
        if (!c->monitor || set_int(c->monitor, ZMQ_LINGER, 0) < 0)
                return -1;
        if (zmq_connect(c->monitor, endpoint) < 0)
                return -1;
        /* A pipe that was never read from signals nothing. */
        cop_channel_disconnects(c);
        return 0;
}

/* c->path_fd is there, the rest is not; on failure c is closed. */
static int connect_socket(void *zmq, enum cop_channel_kind kind, const struct cop_channel_options *options,
                          struct cop_channel *c, struct cop_error *err)
{
        char endpoint[64];

        snprintf(endpoint, sizeof(endpoint), "ipc:///proc/self/fd/%d", c->path_fd);
        c->socket = zmq_socket(zmq, kinds[kind].type);
        if (!c->socket || configure(c, kind, options) != 0 || (kind == COP_CHANNEL_IOPUB && monitor_open(zmq, c) < 0) ||
            zmq_connect(c->socket, endpoint) < 0) {
                int saved = zmq_errno();
                cop_channel_close(c);
                return cop_error_set(err, saved, COP_ERR_internal, "zmq %s socket: %s", kinds[kind].name,
                                     zmq_strerror(saved));
        }
        return 0;
}

int cop_channel_open(void *zmq, enum cop_channel_kind kind, const struct cop_channel_options *options,
                     struct cop_channel *ret, struct cop_error *err)
{
        struct cop_channel c = COP_CHANNEL_NULL;
        int r = open_socket_file(options->dir_fd, options->base, kind, &c.path_fd, err);

        if (r >= 0)
                r = connect_socket(zmq, kind, options, &c, err);
        if (r >= 0)
                *ret = c;
        return r;
}

int cop_channel_reopen(void *zmq, enum cop_channel_kind kind, const struct cop_channel_options *options,
                       struct cop_channel *c, struct cop_error *err)
{
        struct cop_channel fresh = COP_CHANNEL_NULL;

        fresh.path_fd = TAKE_FD(c->path_fd);
        cop_channel_close(c);
        int r = connect_socket(zmq, kind, options, &fresh, err);
        if (r >= 0)
                *c = fresh;
        return r;
}

static int watch(void *socket, struct cop_loop *loop, cop_io_fn fn, void *userdata, struct cop_source **ret,
                 struct cop_error *err)
{
        int fd;
        size_t size = sizeof(fd);

        if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) < 0)
                return cop_error_set(err, zmq_errno(), COP_ERR_internal, "ZMQ_FD: %s", zmq_strerror(zmq_errno()));
        return cop_loop_add_io(loop, fd, EPOLLIN, fn, userdata, ret, err);
}

int cop_channel_watch(struct cop_channel *c, struct cop_loop *loop, cop_io_fn fn, cop_io_fn monitor_fn, void *userdata,
                      struct cop_error *err)
{
        int r = watch(c->socket, loop, fn, userdata, &c->source, err);

        if (r >= 0 && c->monitor)
                r = watch(c->monitor, loop, monitor_fn, userdata, &c->monitor_source, err);
        return r;
}

void cop_channel_close(struct cop_channel *c)
{
        /* The sources first: epoll must not hold descriptors that libzmq closes. */
        c->source = cop_source_free(c->source);
        c->monitor_source = cop_source_free(c->monitor_source);
        if (c->monitor) {
                zmq_socket_monitor(c->socket, NULL, 0);
                zmq_close(c->monitor);
        }
        if (c->socket)
                zmq_close(c->socket);
        c->socket = c->monitor = NULL;
        c->path_fd = cop_close(c->path_fd);
}

int cop_channel_send(struct cop_channel *c, const struct cop_kernel_request *r, struct cop_error *err)
{
        size_t last = sizeof(r->frames) / sizeof(r->frames[0]) - 1;

        for (size_t i = 0; i <= last; i++)
                /* A DEALER refuses only at the first frame of a message, so none is ever sent in half. */
                if (zmq_send(c->socket, r->frames[i].data, r->frames[i].len,
                             ZMQ_DONTWAIT | (i < last ? ZMQ_SNDMORE : 0)) < 0)
                        return cop_error_set(err, zmq_errno() == EAGAIN ? EAGAIN : EIO, COP_ERR_unavailable,
                                             "the kernel does not take messages: %s", zmq_strerror(zmq_errno()));
        return 0;
}

int cop_channel_receive(struct cop_channel *c, struct cop_received *ret)
{
        zmq_msg_t surplus;

        ret->count = ret->bytes = 0;
        for (bool more = true; more;) {
                bool keep = ret->count < COP_MESSAGE_FRAMES_MAX;
                zmq_msg_t *part = keep ? &ret->parts[ret->count] : &surplus;
                zmq_msg_init(part);
                if (zmq_msg_recv(part, c->socket, ZMQ_DONTWAIT) < 0) {
                        int saved = zmq_errno();
                        zmq_msg_close(part);
                        cop_received_done(ret);
                        /* A message arrives whole, so EAGAIN can only come before its first frame. */
                        return saved == EAGAIN || saved == EINTR ? 0 : -saved;
                }
                more = zmq_msg_more(part);
                ret->bytes += zmq_msg_size(part);
                if (keep)
                        ret->frames[ret->count++] = (struct cop_frame){zmq_msg_data(part), zmq_msg_size(part)};
                else
                        zmq_msg_close(part);
        }
        return 1;
}

void cop_received_done(struct cop_received *r)
{
        for (size_t i = 0; i < r->count; i++)
                zmq_msg_close(&r->parts[i]);
        r->count = 0;
}

unsigned cop_channel_disconnects(struct cop_channel *c)
{
        unsigned count = 0;
        char part[256];

        /* Each event is two frames: {u16 event, u32 value} and the endpoint. */
        while (c->monitor && zmq_recv(c->monitor, part, sizeof(part), ZMQ_DONTWAIT) >= 0) {
                int more = 0;
                size_t size = sizeof(more);
                zmq_getsockopt(c->monitor, ZMQ_RCVMORE, &more, &size);
                count += !more;
        }
        return count;
}
