/* One zmq socket of a kernel client and its place in the event loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "base/err.h"
#include "base/loop.h"
#include "jupyter/message.h"

enum cop_channel_kind {
        COP_CHANNEL_SHELL,
        COP_CHANNEL_IOPUB,
        COP_CHANNEL_STDIN,
        COP_CHANNEL_CONTROL,
        COP_CHANNEL__MAX,
};

/* A frame larger than this ends the connection: what was under way is lost, and libzmq does not connect again by itself
 * (cop_channel_reopen).  It is the last resort against a kernel that wants to fill the daemon's memory. */
#define COP_CHANNEL_FRAME_MAX (256LL * 1024 * 1024)

struct cop_channel {
        void *socket;                      /* owned zmq socket */
        void *monitor;                     /* owned zmq socket; iopub only */
        int path_fd;                       /* owned, O_PATH: what the endpoint names, kept for reconnecting */
        struct cop_source *source;         /* owned */
        struct cop_source *monitor_source; /* owned */
};

/* Received frames, owned by libzmq until _done. */
struct cop_received {
        struct cop_frame frames[COP_MESSAGE_FRAMES_MAX];
        size_t count;
        size_t bytes;                            /* of all frames, dropped ones too */
        zmq_msg_t parts[COP_MESSAGE_FRAMES_MAX]; /* owned, the first count */
};

#define COP_CHANNEL_NULL ((struct cop_channel){.path_fd = -EBADF})

struct cop_channel_options {
        int dir_fd;
        const char *base;
        const char *routing_id; /* of DEALER sockets */
        bool bounded;           /* iopub: a limited receive buffer, for a sender that waits */
};

/* -ENOENT when the socket file is not there yet. */
int cop_channel_open(void *zmq, enum cop_channel_kind kind, const struct cop_channel_options *options,
                     struct cop_channel *ret, struct cop_error *err);
/* A new socket to the same inode, whatever is at its path by now; to be watched again. */
int cop_channel_reopen(void *zmq, enum cop_channel_kind kind, const struct cop_channel_options *options,
                       struct cop_channel *c, struct cop_error *err);
/* Has fn called when the socket may have something: then receive until 0, also after every send (the descriptor of a zmq
 * socket is edge-triggered, and sending may eat the edge).  monitor_fn likewise. */
int cop_channel_watch(struct cop_channel *c, struct cop_loop *loop, cop_io_fn fn, cop_io_fn monitor_fn, void *userdata,
                      struct cop_error *err);
void cop_channel_close(struct cop_channel *c);

int cop_channel_send(struct cop_channel *c, const struct cop_kernel_request *r, struct cop_error *err);
/* 1 = a message, 0 = none now, negative = the socket is of no use any more. */
int cop_channel_receive(struct cop_channel *c, struct cop_received *ret);
void cop_received_done(struct cop_received *r);

/* Connections lost since the last call (iopub only). */
unsigned cop_channel_disconnects(struct cop_channel *c);
