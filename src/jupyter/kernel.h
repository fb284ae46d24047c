/* A client of one Jupyter kernel, driven by the event loop.
 *
 * One struct cop_kernel lives as long as one kernel generation (one kernel process, one socket directory, one key).  After
 * a kernel died, free it and open another one on a new directory.  The client does not start, signal or watch processes:
 * that is the caller's part (keeper and engine); it speaks the messaging protocol on the sockets and nothing else.
 *
 *      cop_jupyter_new                one per daemon: the shared zmq context
 *      cop_kernel_open                -> ready(info) or failed(error), once
 *      cop_kernel_execute             -> output()… input_request()… done(), one execution at a time
 *      cop_kernel_poke / _interrupt / _shutdown
 *      cop_kernel_free
 *
 * Everything that arrives was written by the sandbox: it is bounded, its signature is checked, ill-formed UTF-8 becomes
 * U+FFFD, NaN and Infinity become null.  Pointers given to callbacks are borrowed and valid only during the call; json_t
 * values may be kept with json_incref.  Every callback may free the kernel, abandon the execution, or start requests.
 * (cop_kernel_execute from inside done() is allowed: the old execution is no longer in flight then.)
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

/* -- shared context --------------------------------------------------------------------------------------------- */

struct cop_jupyter;

/* One zmq context with one io thread and room for max_kernels kernels (6 sockets each; also raise RLIMIT_NOFILE: about 16
 * descriptors per kernel).  0 = 1000. */
int cop_jupyter_new(struct cop_loop *loop, size_t max_kernels, struct cop_jupyter **ret_jupyter, struct cop_error *err);
/* All kernels must be freed before.  Takes NULL; returns NULL.  Never blocks (LINGER is 0 everywhere). */
struct cop_jupyter *cop_jupyter_free(struct cop_jupyter *j);

/* -- outputs ----------------------------------------------------------------------------------------------------- */

enum cop_output_kind {
        COP_OUTPUT_STREAM,         /* stream, text, text_len */
        COP_OUTPUT_DISPLAY,        /* data, metadata, display_id */
        COP_OUTPUT_RESULT,         /* data, metadata, display_id, execution_count */
        COP_OUTPUT_UPDATE_DISPLAY, /* data, metadata, display_id: replaces all earlier outputs with this id */
        COP_OUTPUT_CLEAR,          /* wait: clear when the next output comes, not now */
        COP_OUTPUT_ERROR,          /* ename, evalue, traceback */
};

enum cop_stream {
        COP_STREAM_STDOUT = 1,
        COP_STREAM_STDERR = 2,
};

struct cop_output {
        enum cop_output_kind kind;
        usec_t time;     /* CLOCK_REALTIME of arrival */
        bool parentless; /* the message named no cell; it is given to the one in flight */

        enum cop_stream stream;
        const char *text; /* borrowed; valid UTF-8, NUL-terminated, may contain NULs */
        size_t text_len;

        json_t *data;            /* borrowed; object MIME type -> string or JSON, never NULL for its kinds */
        json_t *metadata;        /* borrowed; object, never NULL for its kinds */
        const char *display_id;  /* borrowed; NULL = none */
        int64_t execution_count; /* -1 = none */

        bool wait;

        const char *ename, *evalue; /* borrowed; never NULL for its kind */
        json_t *traceback;          /* borrowed; array of strings, never NULL for its kind; may hold ANSI colours */
};

/* -- kernel ------------------------------------------------------------------------------------------------------ */

struct cop_kernel;
struct cop_execution;

struct cop_kernel_info {
        const char *protocol_version; /* "5.3" */
        const char *implementation;   /* "ipython" */
        const char *implementation_version;
        const char *language; /* language_info.name: "python" */
        const char *language_version;
        json_t *content; /* the whole kernel_info_reply */
};

struct cop_kernel_events {
        /* Both directions work and no output can be lost any more (note 1.3).  Once, never together with failed.  The members of
         * info are NULL when a greeting took the question's place. */
        void (*ready)(struct cop_kernel *k, const struct cop_kernel_info *info, void *userdata);
        /* The kernel did not become ready within its time, a socket in the directory is not one, or the transport broke
         * for good.  An execution in flight gets done(NO_REPLY) first.  Afterwards only cop_kernel_free is useful. */
        void (*failed)(struct cop_kernel *k, const struct cop_error *error, void *userdata);
        /* Output whose parent is an execution that is over or was abandoned (msg_id: see cop_execution_id), or that has
         * no parent while nothing is in flight (msg_id NULL).  May be NULL. */
        void (*late_output)(struct cop_kernel *k, const char *msg_id, const struct cop_output *o, void *userdata);
        /* The kernel announced its state (busy, idle, starting) for somebody's request.  May be NULL. */
        void (*status)(struct cop_kernel *k, const char *execution_state, void *userdata);
};

struct cop_meeting;

struct cop_kernel_options {
        int dir_fd;          /* borrowed until ready or failed; the host side of the socket directory */
        const char *base;    /* socket names are base-1 … base-5; NULL = "k" */
        const char *key;     /* of the connection file; "" = unsigned */
        const char *session; /* 1-64 of [A-Za-z0-9_-]; unique per client, kept by the caller when it wants to adopt */
        usec_t timeout;      /* until ready; 0 = 60 s */
        /* The kernel runs already and may be busy (the daemon was restarted, the sandbox thawed): readiness is then asked
         * for on the control channel too.  Use the session of the former client to get replies meant for it. */
        bool adopt;
        /* With adopt: it was idle when it was last heard of, so control is asked only when shell does not answer soon. */
        bool idle;
        /* The kernel waits instead of dropping output that nobody has taken (coppice_kernel does, stock kernels do not): the
         * receive buffer is then limited, so that a kernel faster than the daemon is slowed down and memory stays flat. */
        bool holds_back;
        /* Of cop_kernel_meet with the same session, base and holds_back, or NULL; taken over, also on failure. */
        struct cop_meeting *met;
};

/* Connects to the sockets of a kernel that does not run yet and whose sockets are there already (it is being thawed), so that it finds
 * the connections when it wakes.  Of options: dir_fd, base, session, holds_back.  What is not there is left to cop_kernel_open. */
int cop_kernel_meet(struct cop_jupyter *j, const struct cop_kernel_options *options, struct cop_meeting **ret,
                    struct cop_error *err);
struct cop_meeting *cop_meeting_free(struct cop_meeting *m); /* takes NULL; returns NULL */

/* Starts connecting.  The sockets may not exist yet: the directory is looked at every 5 ms until they do.  Each socket is
 * opened with O_PATH beneath dir_fd without following links, must be a socket, and is reached through /proc/self/fd. */
int cop_kernel_open(struct cop_jupyter *j, const struct cop_kernel_options *options,
                    const struct cop_kernel_events *events, void *userdata, struct cop_kernel **ret_kernel,
                    struct cop_error *err);
/* At any time, also inside callbacks; no callback runs after it, not even done() of an execution in flight.  Takes NULL;
 * returns NULL. */
struct cop_kernel *cop_kernel_free(struct cop_kernel *k);

bool cop_kernel_is_ready(const struct cop_kernel *k);
/* The execution in flight, or NULL.  Borrowed. */
struct cop_execution *cop_kernel_running(const struct cop_kernel *k);

/* A kernel_info_request on shell: wakes an `await` that did not notice its interrupt (note 1.6). */
int cop_kernel_poke(struct cop_kernel *k, struct cop_error *err);
/* interrupt_request on control, for kernelspecs with interrupt_mode "message". */
int cop_kernel_interrupt(struct cop_kernel *k, struct cop_error *err);
/* shutdown_request on control.  The kernel may take its time or ignore it: kill it after 1 s. */
int cop_kernel_shutdown(struct cop_kernel *k, bool restart, struct cop_error *err);
/* Tells the client that the process is gone: an execution in flight gets done(NO_REPLY) after what still lies in the
 * sockets has been delivered (at most 200 ms).  Nothing is sent any more, and before ready no failed() follows. */
void cop_kernel_died(struct cop_kernel *k);

struct cop_kernel_stats {
        uint64_t messages, bytes; /* received on all channels, headers included */
        uint64_t bad_signature;   /* dropped */
        uint64_t malformed;       /* dropped */
        uint64_t repaired;        /* ill-formed UTF-8 or JSON that was mended */
        uint64_t disconnects;     /* of iopub: output may be missing */
};
void cop_kernel_get_stats(const struct cop_kernel *k, struct cop_kernel_stats *ret);

/* -- executions -------------------------------------------------------------------------------------------------- */

enum cop_execution_status {
        COP_EXECUTION_OK,
        COP_EXECUTION_ERROR,
        COP_EXECUTION_ABORTED,  /* the kernel skipped it */
        COP_EXECUTION_NO_REPLY, /* idle without a reply, the kernel died, or the transport failed */
};

struct cop_execution_result {
        enum cop_execution_status status;
        int64_t execution_count;    /* -1 = the kernel gave none */
        const char *ename, *evalue; /* ERROR: never NULL; else NULL */
        json_t *traceback;          /* ERROR: array of strings; else NULL */
        json_t *user_expressions;   /* object or NULL */
        bool ask_exit;              /* the user left with exit(): the process ends within about a second */
        bool output_incomplete;     /* idle never came or output was lost on the way */
        usec_t started, ended;      /* CLOCK_REALTIME: sent, and reply or idle, whichever was later */
        usec_t duration;            /* CLOCK_MONOTONIC, of the same span */
};

struct cop_execution_events {
        void (*output)(struct cop_execution *x, const struct cop_output *o, void *userdata);
        /* Only when allow_stdin; answer with cop_execution_input, when it pleases.  May be NULL. */
        void (*input_request)(struct cop_execution *x, const char *prompt, bool password, void *userdata);
        /* Once; the execution is freed when it returns. */
        void (*done)(struct cop_execution *x, const struct cop_execution_result *result, void *userdata);
};

struct cop_execute_options {
        const char *id; /* borrowed; of cop_kernel_new_id, to know it before the request is sent; NULL = a new one */
        bool silent;
        bool no_history; /* store_history: false */
        bool allow_stdin;
        bool stop_on_error;
        /* Called right after cop_kernel_open with adopt: the request takes the place of the first question for readiness, and
         * with its reply the execution ends.  Meant for silent code whose output nobody looks at. */
        bool greets;
        json_t *user_expressions; /* borrowed; object of strings or NULL */
        /* How long to wait for the other half; 0 = 4 s for idle after the reply, 1.5 s for the reply after idle. */
        usec_t idle_timeout, reply_timeout;
        /* After both, to wait for output of other processes when the kernel has a stock OutStream (note 1.9); 0 = none */
        usec_t settle;
};

/* A msg_id of this client, unused so far; at most COP_MESSAGE_ID_MAX bytes. */
void cop_kernel_new_id(struct cop_kernel *k, char *ret, size_t size);

/* Sends the code (UTF-8 as given; the caller refused what is not).  -EBUSY invalid_state when an execution is in flight,
 * -ENOTCONN invalid_state when the kernel is not ready.  The execution belongs to the kernel. */
int cop_kernel_execute(struct cop_kernel *k, const char *code, size_t len, const struct cop_execute_options *options,
                       const struct cop_execution_events *events, void *userdata, struct cop_execution **ret_execution,
                       struct cop_error *err);

/* Takes over an execution that a former client with the same session sent (adopt).  Ends with its reply, or, when that was
 * missed, once the kernel answers on shell again: done(NO_REPLY, output_incomplete). */
int cop_kernel_adopt_execution(struct cop_kernel *k, const char *msg_id, const struct cop_execution_events *events,
                               void *userdata, struct cop_execution **ret_execution, struct cop_error *err);

const char *cop_execution_id(const struct cop_execution *x); /* msg_id of the request */
void *cop_execution_userdata(const struct cop_execution *x);
struct cop_kernel *cop_execution_kernel(const struct cop_execution *x);

/* Answers an input_request; "\x04" is end of file.  -ENOENT invalid_state when none is open. */
int cop_execution_input(struct cop_execution *x, const char *value, size_t len, struct cop_error *err);

/* Forgets it without done(): later outputs go to late_output.  The kernel may still be busy with it, so the next execution
 * waits in the kernel's queue.  Takes NULL; returns NULL. */
struct cop_execution *cop_execution_abandon(struct cop_execution *x);
