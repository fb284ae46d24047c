/* The engine's end of one coppice-keeper: starting or finding it, requests with replies, events.  Protocol:
 * sandbox/wire.h. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/msg.h"
#include "sandbox/wire.h"

struct cop_keeper;
struct cop_keeper_call;

/* reply is NULL when err is set (an error reply of the keeper, or the connection was lost: unavailable). Both are
 * borrowed; descriptors may be taken out of the reply. */
typedef void (*cop_keeper_reply_fn)(struct cop_msg *reply, const struct cop_error *err, void *userdata);
struct cop_keeper_events {
        void (*event)(struct cop_msg *event, void *userdata); /* COP_WIRE_EVENT_* */
        /* The keeper is gone or broke the protocol; called once, after every open call failed. */
        void (*lost)(const struct cop_error *err, void *userdata);
        void *userdata;
};

struct cop_keeper_start {
        const char *keeper_path, *socket_path;
        const char *log_path; /* where the keeper's stderr goes (append) */
        int hold_fd;          /* borrowed; the keeper keeps a copy open as long as it lives; negative = none */
};

/* Makes the listening socket at socket_path (mode 0600), starts keeper_path detached from us with it, and connects.
 * The keeper gets the socket as descriptor 3, and a session of its own. */
int cop_keeper_start(struct cop_loop *loop, const struct cop_keeper_start *start,
                     const struct cop_keeper_events *events, struct cop_keeper **ret, struct cop_error *err);
/* Connects to a running keeper; -ECONNREFUSED or -ENOENT when there is none. */
int cop_keeper_connect(struct cop_loop *loop, const char *socket_path, const struct cop_keeper_events *events,
                       struct cop_keeper **ret, struct cop_error *err);
/* Closes the connection; open calls are dropped without a reply.  The keeper lives on. */
struct cop_keeper *cop_keeper_free(struct cop_keeper *k);

/* From now on somebody else is told; e is copied. */
void cop_keeper_set_events(struct cop_keeper *k, const struct cop_keeper_events *e);

/* SIGKILL for a keeper that does not answer; nothing happens when it was not started by us. */
void cop_keeper_kill(struct cop_keeper *k); /* takes NULL */

/* Sends m (consumed: fields and descriptors) with a fresh id.  fn is called exactly once, from the loop, unless the
 * call is cancelled or the keeper freed.  Failures to send also arrive through fn.  At most 4096 messages wait for a
 * full socket.  deadline in µs from now, USEC_INFINITY = none; after it fn gets `timeout`. */
struct cop_keeper_call *cop_keeper_call(struct cop_keeper *k, struct cop_msg *m, usec_t deadline,
                                        cop_keeper_reply_fn fn, void *userdata);
void cop_keeper_call_cancel(struct cop_keeper_call *call); /* takes NULL */
