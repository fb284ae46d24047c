/* Contexts and the cells in them: shared by context.c (operations), kernel.c (the process behind a context), cell.c (queue and results)
 * and limit.c (interrupts and time limits).
 *
 *      context ── has one kernel process at a time; each has a generation, an own folder, key and sockets
 *         └ queue of cells, one running
 *
 * States of a context:
 *      starting    the first kernel is being started
 *      idle, busy  a kernel is ready; a cell runs or not
 *      restarting  the kernel died or is being replaced; the next one is being started
 *      dead        a kernel could not be started; the next cell tries again
 */
#pragma once

#include "engine/internal.h"
#include "engine/outputs.h"
#include "engine/record.h"
#include "jupyter/kernel.h"
#include "jupyter/kernelspec.h"

#define COP_QUEUE_MAX 256   /* cells waiting in one context */
#define COP_CONTEXTS_MAX 64 /* contexts of one sandbox */
#define COP_RECENT_MAX 32   /* ended cells that may still get late output */

/* How a kernel process came to its end. */
struct cop_kernel_end {
        bool set;
        int status; /* as wait(2) */
        bool oom;
        uint64_t peak;      /* bytes, when oom */
        const char *reason; /* "died", "oom", "timeout", "restarted", "exit", "transport"; a literal */
};

struct cop_recent_cell {
        char msg_id[64];
        char cell_id[COP_ID_MAX];
        usec_t started;
};

struct cop_waiting_op { /* operations that wait for the kernel to be ready */
        struct cop_waiting_op *next;
        struct cop_op *op;
};

struct cop_context {
        struct cop_sandbox *sandbox; /* borrowed */
        struct cop_context *next;
        struct cop_context_row *row;  /* owned: what the store holds, kept in step */
        struct cop_kernelspec *spec;  /* borrowed from specs */
        struct cop_kernelspecs specs; /* owned */
        json_t *env;                  /* owned, may be NULL */
        struct cop_kernel *kernel;    /* owned; NULL while there is none */
        int dir_fd;                   /* owned: the kernel's folder, until the client is connected */
        struct cop_keeper_call *call; /* the step of starting that is under way */
        struct cop_kernel_end end;    /* of the present kernel, once it ended */
        const char *kill_reason;      /* why we killed it: a literal of cop_kernel_end.reason, or NULL */
        unsigned start_failures;
        struct cop_waiting_op *waiting;
        struct cop_execution *prepare; /* borrowed from the kernel: in a fork, before its first cell */
        struct cop_cell *running, *queue_head, *queue_tail;
        unsigned queued;
        struct cop_recent_cell recent[COP_RECENT_MAX];
        unsigned recent_next;
        json_t *state_lost;            /* owned: to be told by the next cell */
        struct cop_source *exit_timer; /* owned: exit() was called, the process must end soon */
        struct cop_op *remove_op;
        struct cop_context_replay *replay; /* owned: cells that are run again, before any other (replay.c) */
        bool removing, prepared;
        bool exiting; /* the code called exit(): the process is about to end */
};

enum cop_interrupt_cause {
        COP_CAUSE_NONE,
        COP_CAUSE_TIMEOUT,
        COP_CAUSE_USER,
};

struct cop_cell {
        struct cop_context *context; /* borrowed */
        struct cop_cell *next;
        struct cop_cell_row *row; /* owned */
        usec_t timeout;           /* µs */
        size_t output_max;
        bool stdin_open, silent, no_history, taken, interrupt_on_disconnect;
        struct cop_outputs *outputs;     /* owned once it runs */
        struct cop_record *record;       /* owned until the end */
        struct cop_execution *execution; /* borrowed from the kernel */
        struct cop_op *op;               /* who waits for the result; NULL = nobody */
        json_t *error;                   /* owned: the last error output or the reply's */
        json_t *state_lost;              /* owned: told by this cell */
        json_t *warnings;                /* owned array or NULL */
        json_t *user_expressions;        /* owned or NULL */
        bool replied, ask_exit, adopted, input_open;
        char before[COP_ID_MAX]; /* the node that is the state before it; "" = there is none */
        enum cop_execution_status reply;
        uint64_t oom_kills_before;
        /* limit.c */
        struct cop_source *timer; /* owned */
        enum cop_interrupt_cause cause;
        unsigned interrupts;    /* sent so far */
        bool killed;            /* the last stage was reached */
        usec_t interrupt_begun; /* CLOCK_MONOTONIC */
        usec_t begun;           /* CLOCK_MONOTONIC: start of the run */
};

/* -- kernel.c ------------------------------------------------------------------------------------------------------------ */

int cop_engine_jupyter(struct cop_engine *e, struct cop_error *err); /* makes e->jupyter */
/* A kernel of this spec is started with coppice_kernel. */
bool cop_sandbox_tunes(const struct cop_sandbox *sb, const struct cop_kernelspec *spec);
/* Starts a kernel of a new generation; state becomes starting or restarting. */
void cop_context_start_kernel(struct cop_context *c);
/* Connects to the kernel that the store says is running (daemon restart). */
void cop_context_adopt_kernel(struct cop_context *c);
/* The connections that meet.c made to its kernel, NULL: there are none.  The caller's. */
struct cop_meeting *cop_context_met(struct cop_context *c);
/* SIGKILL for the whole process group; reason as in cop_kernel_end. */
void cop_context_kill_kernel(struct cop_context *c, const char *reason);
/* SIGINT to the group, or the message that the kernelspec asks for. */
void cop_context_send_interrupt(struct cop_context *c);
/* The process ended (event of the keeper). */
void cop_context_kernel_ended(struct cop_context *c, struct cop_msg *event);
/* After the end, when no cell needs it any more: forgets the kernel, remembers the loss, starts the next one. */
void cop_context_replace_kernel(struct cop_context *c);
void cop_context_drop_kernel(struct cop_context *c); /* frees the client, cancels what is under way */

/* -- context.c ----------------------------------------------------------------------------------------------------------- */

void cop_context_set_state(struct cop_context *c, const char *state); /* in memory and store */
/* In memory only: what the next daemon finds out by itself (busy), or what is saved with something else. */
void cop_context_note_state(struct cop_context *c, const char *state);
void cop_context_save(struct cop_context *c);
json_t *cop_context_view(struct cop_context *c);
/* The kernel is ready, or could not be started (err): answers who waits. */
void cop_context_answer_waiting(struct cop_context *c, const struct cop_error *err);
/* Its kernel is being started, or connected to. */
bool cop_context_is_coming(const struct cop_context *c);
/* Answers op (with the Context, or why there will be no kernel) when it is there. */
void cop_context_when_ready(struct cop_context *c, struct cop_op *op);
int cop_context_find(struct cop_sandbox *sb, const char *ref, struct cop_context **ret, struct cop_error *err);
void cop_context_free(struct cop_context *c);

/* -- cell.c -------------------------------------------------------------------------------------------------------------- */

void cop_context_run_next(struct cop_context *c); /* starts the next cell if the kernel is idle */
/* The kernel's process ended while this context had a cell: called once the outputs are in. */
void cop_cell_finish(struct cop_cell *cell);
/* Ends every cell of the context with this status and message (context removed, sandbox ended, kernel does not start). */
void cop_cells_abort(struct cop_context *c, const char *status, const struct cop_error *why);
void cop_cells_detach(struct cop_context *c); /* daemon stops: memory goes, rows and records stay open */
void cop_cells_adopt(struct cop_context *c);  /* daemon restart: rows that are queued or running */
void cop_context_late_output(struct cop_context *c, const char *msg_id, const struct cop_output *o);
struct cop_cell *cop_cell_find_live(struct cop_sandbox *sb, const char *id);
/* The kernel of an adopted context answers: follow the cell that a former daemon sent to it. */
void cop_cell_resume(struct cop_cell *cell);

/* A cell that runs `of` (with its code) again: in the store, with a record, for the context to run next. */
int cop_cell_repeat(struct cop_context *c, const struct cop_cell_row *of, struct cop_cell **ret, struct cop_error *err);

/* -- replay.c -------------------------------------------------------------------------------------------------------------- */

/* The next cell that is to be run again; NULL when that was all: c->replay is NULL then. */
struct cop_cell *cop_replay_next(struct cop_context *c);
void cop_replay_cell_ended(struct cop_cell *cell); /* one that repeats another; its row says how */
void cop_replay_stop(struct cop_context *c);       /* the kernel has ended, or the context goes: the rest is not run */

/* -- cell-view.c ----------------------------------------------------------------------------------------------------------- */

/* "state_lost", or "state_replayed" when what was lost was made again. */
const char *cop_loss_key(json_t *loss);
json_t *cop_cell_summary(struct cop_cell *cell); /* everything but code and outputs */
json_t *cop_cell_view(struct cop_cell *cell);    /* with code and the outputs so far */
json_t *cop_cell_row_view(const struct cop_cell_row *row, bool outputs);
/* What it brought lies only in the state that it was taken from. */
bool cop_cell_was_taken(const struct cop_cell_row *row);

/* -- limit.c ----------------------------------------------------------------------------------------------------------------- */

void cop_cell_arm_limit(struct cop_cell *cell); /* when the run starts */
/* Begins the ladder: interrupt, poke, again each second; a timeout kills after 4 s, a user's interrupt gives up. */
void cop_cell_begin_interrupt(struct cop_cell *cell, enum cop_interrupt_cause cause);
/* {limit_seconds, stage, ended_after_ms} of a cell whose limit was reached, else NULL. */
json_t *cop_cell_timeout_view(struct cop_cell *cell);

/* -- env.c --------------------------------------------------------------------------------------------------------------------- */

/* Adds COP_TAG_ENV fields: the image's, then the sandbox's, then extra (object of strings, may be NULL), then more (NAME=value list,
 * may be NULL); a later one replaces an earlier one of the same name. */
void cop_msg_add_env(struct cop_msg *m, struct cop_sandbox *sb, json_t *extra, char *const *more);
