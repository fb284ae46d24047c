/* What kernel.c and execution.c share. */
#pragma once

#include "base/cleanup.h"
#include "jupyter/channel.h"
#include "jupyter/kernel.h"
#include "jupyter/message.h"
#include "jupyter/output.h"

enum kernel_state {
        KERNEL_CONNECTING, /* socket files are not all there */
        KERNEL_NUDGING,    /* connected; waiting for a reply and for any iopub message */
        KERNEL_READY,
        KERNEL_DEAD, /* the process is gone; only what lies in the sockets is still delivered */
        KERNEL_FAILED,
};

struct cop_jupyter {
        void *zmq;             /* owned */
        struct cop_loop *loop; /* borrowed */
};

struct cop_kernel {
        struct cop_jupyter *jupyter; /* borrowed */
        struct cop_loop *loop;       /* borrowed */
        struct cop_kernel_events events;
        void *userdata; /* borrowed */

        enum kernel_state state;
        unsigned entered; /* callbacks on the stack */
        bool freed;       /* to be released when the last of them returns */

        int dir_fd;    /* borrowed until ready or failed */
        char *base;    /* owned */
        char *session; /* owned */
        char routing_id[80];
        unsigned reopened;  /* times that shell and stdin were opened anew */
        char id_prefix[40]; /* of message ids */
        uint64_t id_counter;
        bool adopt, idle, holds_back;
        json_t *greeting;                              /* owned; execute_request that waits for the connection */
        struct cop_signer *signer;                     /* owned */
        struct cop_channel channels[COP_CHANNEL__MAX]; /* owned */
        struct cop_source *timer;                      /* owned; connecting, nudging */
        struct cop_source *pump;                       /* owned; deferred, drains the sockets */

        usec_t deadline, nudge_due;
        bool got_reply, got_iopub;
        json_t *info; /* owned; kernel_info_reply */

        struct cop_kernel_stats stats;
        struct cop_execution *running; /* owned */
};

struct cop_execution {
        struct cop_kernel *kernel; /* borrowed */
        struct cop_execution_events events;
        void *userdata; /* borrowed */
        bool detached;  /* done() is on the stack */
        char id[COP_MESSAGE_ID_MAX];
        char probe_id[COP_MESSAGE_ID_MAX]; /* adopted: a kernel_info_request sent after it; "" = none */
        usec_t idle_timeout, reply_timeout, settle;
        usec_t started, started_monotonic, ended, ended_monotonic;
        bool got_reply, got_idle;
        bool greets; /* needs no idle */
        bool incomplete;
        json_t *reply;            /* owned; content of execute_reply */
        json_t *input_header;     /* owned; of an open input_request */
        struct cop_source *timer; /* owned; waiting for the other half */
};

/* kernel.c */
/* Sends on a channel; msg_id may be NULL (a new one). */
int cop_kernel_send(struct cop_kernel *k, enum cop_channel_kind channel, const char *type, const char *msg_id,
                    json_t *parent, json_t *content, struct cop_error *err);
/* Shell and stdin anew, under another routing id, after a reply that should have come did not. */
void cop_kernel_reopen_shell(struct cop_kernel *k);
/* Around every call of a user's function.  leave returns false when the kernel was freed meanwhile: touch it no more. */
void cop_kernel_enter(struct cop_kernel *k);
_must_check_ bool cop_kernel_leave(struct cop_kernel *k);

/* execution.c: each may free the kernel; callers hold an enter. */
void cop_execution_free(struct cop_execution *x);
void cop_execution_on_output(struct cop_execution *x, const struct cop_output *o);
void cop_execution_on_idle(struct cop_execution *x);
void cop_execution_on_reply(struct cop_execution *x, const struct cop_message *m);
void cop_execution_on_input_request(struct cop_execution *x, const struct cop_message *m);
/* A kernel_info_reply with this parent arrived on shell. */
void cop_execution_on_probe(struct cop_execution *x, const char *parent_id);
/* Ends it as it stands: NO_REPLY unless a reply is there. */
void cop_execution_finish(struct cop_execution *x);
