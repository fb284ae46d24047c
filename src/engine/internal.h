/* Shared inside src/engine: the engine, its sandboxes, and how operations begin and end.
 *
 * Ownership: engine → sandboxes → contexts → cells waiting or running; sandbox → commands running.  What has ended lives in the store
 * only.  Everything runs on one thread; an object that may vanish while a call is under way is found again by id, never by pointer.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/msg.h"
#include "engine/engine.h"
#include "engine/keeper.h"
#include "store/store.h"

#define COP_SANDBOX_ID_LEN 13 /* sb_ + 10 */
#define COP_ID_MAX 32         /* any id with its NUL */

struct cop_context;
struct cop_command;
struct cop_jupyter; /* jupyter/kernel.h */

enum cop_sandbox_state {
        COP_SANDBOX_STARTING,
        COP_SANDBOX_RUNNING,
        COP_SANDBOX_SUSPENDING, /* sleep.c: waits for quiet, then is frozen */
        COP_SANDBOX_SUSPENDED,  /* no process, no keeper; its state is a node */
        COP_SANDBOX_RESUMING,   /* its node is being thawed, or booted cold */
        COP_SANDBOX_ENDING,
        COP_SANDBOX_ENDED,
};

enum cop_checkpoints {
        COP_CHECKPOINTS_OFF,
        COP_CHECKPOINTS_AFTER_CELL,
        COP_CHECKPOINTS_BEFORE_CELL,
};

/* What is run again after a boot without memory (replay.c). */
enum cop_replay_mode {
        COP_REPLAY_NONE,
        COP_REPLAY_ALL,
        COP_REPLAY_PURE,
};

#define COP_CHECKPOINTS_DEFAULT COP_CHECKPOINTS_AFTER_CELL

/* What happens to a sandbox by itself (policy.c); the row holds only what was asked for. */
struct cop_policy {
        usec_t idle; /* 0 = never */
        enum cop_checkpoints checkpoints;
        enum cop_replay_mode replay;
        bool persistent, restore_on_timeout;
        bool copy; /* of copy.c: hidden, and gone after a restart of the daemon */
        unsigned checkpoint_keep, retention_days;
        unsigned snapshot_keep; /* 0 = all */
        uint64_t checkpoint_bytes;
};

/* checkpoint.c */
struct cop_checkpointing {
        struct cop_source *timer; /* owned */
        bool answer_first;        /* the timer lets a turn of the loop pass before */
        bool wanted;              /* a cell has ended since the last one */
        unsigned failures;        /* in a row */
        usec_t retry_at;          /* CLOCK_MONOTONIC */
        char current[COP_ID_MAX]; /* the node that is the present state, perhaps still being written; "" = none is */
        char restore[COP_ID_MAX]; /* on_timeout restore: the node to go back to */
};

/* A kernel that was thawed in another sandbox than the one it was started in (kernel.c). */
#define COP_PREPARE_SEED (1u << 0)  /* random numbers of its own */
#define COP_PREPARE_ENV (1u << 1)   /* the sandbox's environment */
#define COP_PREPARE_LIMIT (1u << 2) /* the sandbox's memory limit */

/* Someone waits for a sandbox to be usable (engine.c: cop_sandbox_when_running). */
struct cop_sandbox_waiter;

struct cop_sandbox {
        struct cop_engine *engine; /* borrowed */
        struct cop_sandbox *next;
        char id[COP_ID_MAX];
        char *name; /* owned, NULL = none */
        enum cop_sandbox_state state;
        struct cop_sandbox_row *row;  /* owned: what the store holds, kept in step */
        struct cop_keeper *keeper;    /* owned, NULL unless starting … ending */
        struct cop_context *contexts; /* owned list (context.c) */
        struct cop_met *met;          /* owned list (meet.c): kernels that were connected to before they ran */
        struct cop_command *commands; /* owned list (command.c): live ones and those not yet written to the store */
        struct cop_sandbox_waiter *waiters;
        char dir[4096];     /* $COPPICE_HOME/sandboxes/<id> */
        int ipc_fd;         /* owned: run/ipc, the host side of /run/coppice: HOSTILE contents */
        int logs_fd;        /* owned: logs */
        uint64_t oom_kills; /* newest count told by the keeper */
        uint64_t memory_peak;
        usec_t last_activity;                 /* CLOCK_REALTIME */
        bool memory_restored, require_memory; /* sleep.c: of the last, and of the next resume */
        char resume_reason[32], resume_message[COP_ERROR_MESSAGE_MAX];
        usec_t resume_time;
        unsigned replay_asked;     /* by the next resume: enum cop_replay_mode + 1; 0 = as the policy says */
        bool replay_due;           /* memory was lost: as soon as contexts and commands are there */
        bool new_limits;           /* changed while it slept */
        bool generation_told;      /* by its file, since the last start */
        bool thawed_ahead;         /* its tree was there before it (sandbox-prepare.c) */
        struct cop_replay *replay; /* owned: under way (replay.c) */
        json_t *replay_report;     /* owned: of the last resume, NULL = nothing was replayed */
        json_t *kernelspecs;       /* owned: of the image */
        json_t *defaults;          /* owned: of the image: user, uid, gid, home, workdir, env */
        struct cop_policy policy;  /* of row->policy */
        struct cop_checkpointing checkpoint;
        struct cop_making *makings; /* owned list: nodes being made, one after the other (node.c) */
        bool held;                  /* cells wait: the state for a node has not been taken yet */
        bool thawing;               /* it runs from a node, and nobody has used it yet: it may fall asleep again */
        unsigned prepare;           /* COP_PREPARE_*: what its thawed kernels do before their first cell */
        struct cop_sandbox_start
                *start; /* owned: while it is being created (sandbox-start.c) or taken over (adopt.c) */
        struct cop_sandbox_sleep *sleep; /* owned: a suspend, resume or goto under way (sleep.c) */
        struct cop_sandbox_end *end;     /* owned: from the moment it begins to end (sandbox-end.c) */
};

struct cop_engine {
        struct cop_loop *loop;                                       /* borrowed */
        struct cop_store *store;                                     /* owned */
        struct cop_jupyter *jupyter;                                 /* owned, made by context.c when first needed */
        char *home, *keeper_path, *pack_path, *image_tool, *recipes; /* owned */
        char *compare_path;                                          /* owned; NULL = there is none */
        struct cop_sandbox *sandboxes;                               /* owned list: all that have not ended */
        void *sandboxes_by_id;                                       /* the same in a tree, see tsearch(3) */
        struct cop_sandbox *prepared;                                /* owned list (sandbox-prepare.c) */
        struct cop_spares *spares;                                   /* owned, NULL = none yet (spare.c) */
        struct cop_op *ops;                                          /* operations under way */
        struct cop_record_hub *records;             /* owned (record.c): live records and their readers */
        struct cop_source *ttl_timer, *purge_timer; /* owned (policy.c) */
        struct cop_trash *trash;                    /* owned (trash.c) */
        struct cop_durable *durable;                /* owned (durable.c) */
        struct cop_image_job *image_jobs;           /* owned list (image.c): builds and imports under way */
        struct cop_flattening *flattenings;         /* owned list (flatten.c): the first is under way */
        struct cop_warming *warmings;               /* owned list (golden.c): golden states being made */
        struct cop_gc *gc;                          /* owned, NULL = none is under way (gc.c) */
        struct cop_doctor *doctors;                 /* owned list (doctor.c) */
        struct cop_packing *packs;                  /* owned list (pack.c) */
        struct cop_comparison *comparisons;         /* owned list (compare.c) */
        struct cop_hold *holds;                     /* owned list (hold.c) */
        struct cop_adoption *adoptions; /* owned list (adopt.c): keepers without a row that are being stopped */
        char boot_id[40];               /* of the host */
        uint64_t op_serial;
        char *uid_claims;  /* owned (uids.c) */
        uint32_t uid_base; /* of slot 0 */
        unsigned slots, ends_since_prune;
        int lock_fd;         /* owned: keeps a second engine off this home */
        int cgroup_moves_fd; /* owned: cop_cgroup_favor_moves; negative errno = they are slow */
        usec_t started_at;
        bool closing, no_spare;
};

/* -- operations: op.c ----------------------------------------------------------------------------------------------- */

/* Begins an operation.  cancel (may be NULL) is called by cop_op_cancel; after it the operation may still call cop_op_done, which then
 * only frees.  NULL when out of memory: to.done was then called already. */
struct cop_op *cop_op_new(struct cop_engine *e, struct cop_op_to to, void (*cancel)(void *data), void *data);
/* Ends it: result is stolen (may be NULL), err borrowed.  Takes NULL op (nothing happens; result is still released). */
void cop_op_done(struct cop_op *op, json_t *result, const struct cop_error *err);
void cop_op_progress(struct cop_op *op, json_t *event); /* event is borrowed */
bool cop_op_cancelled(const struct cop_op *op);
struct cop_engine *cop_op_engine(const struct cop_op *op);
/* For *ret_op of a function that may have finished: the number of an operation, and the operation with this number, NULL once it is
 * done.  (The pointer alone would not do: its memory may already belong to the next one.) */
uint64_t cop_op_serial(const struct cop_op *op);
struct cop_op *cop_op_find(struct cop_engine *e, uint64_t serial);
/* Sets or changes what cop_op_cancel calls. */
void cop_op_on_cancel(struct cop_op *op, void (*cancel)(void *data), void *data);
/* Answers an operation that needs no cop_op. */
void cop_answer(struct cop_op_to to, json_t *result /* stolen */, const struct cop_error *err);

void cop_doctors_drop(struct cop_engine *e); /* doctor.c */

/* -- what survives a power cut: durable.c ---------------------------------------------------------------------------- */

int cop_durable_new(struct cop_engine *e, struct cop_error *err);
void cop_durable_free(struct cop_engine *e); /* after everybody who waits was called */
/* Calls fn when all that was committed up to the end of this turn is on disk; err: it may not be.  At once only without memory. */
typedef void (*cop_durable_fn)(const struct cop_error *err, void *userdata);
void cop_engine_when_durable(struct cop_engine *e, cop_durable_fn fn, void *userdata);
/* As cop_op_done and cop_answer, but a result is told only when it is on disk; the operation cannot be cancelled meanwhile. */
void cop_op_done_durable(struct cop_op *op, json_t *result, const struct cop_error *err);
void cop_answer_durable(struct cop_engine *e, struct cop_op_to to, json_t *result, struct cop_op **ret_op);

/* -- sandboxes: sandbox.c ------------------------------------------------------------------------------------------- */

/* The live sandbox with this id or name; sandbox_not_found, or sandbox_ended (with ended_reason in the message) for one that was. */
int cop_sandbox_find(struct cop_engine *e, const char *ref, struct cop_sandbox **ret, struct cop_error *err);
/* Calls fn when the sandbox can take requests: at once when it runs, else after the transition.  This is the one place where
 * a suspended sandbox is woken.  fn gets sb = NULL and err when it cannot.  Counts as activity. */
typedef void (*cop_sandbox_fn)(struct cop_sandbox *sb, const struct cop_error *err, void *userdata);
void cop_sandbox_when_running(struct cop_engine *e, const char *ref, cop_sandbox_fn fn, void *userdata);
/* The same for a function that returns its operation: fn may end op at once, and then *ret_op (ret_op may be NULL) becomes NULL. */
void cop_op_when_running(struct cop_op *op, struct cop_engine *e, const char *ref, cop_sandbox_fn fn, void *userdata,
                         struct cop_op **ret_op);
/* Sets a time of CLOCK_REALTIME as RFC 3339, nothing for 0. */
void cop_view_time(json_t *object, const char *key, usec_t at);
/* The API's Sandbox object from memory and store. NULL when out of memory. */
json_t *cop_sandbox_view(struct cop_sandbox *sb);
json_t *cop_sandbox_row_view(struct cop_engine *e, const struct cop_sandbox_row *row);
/* Takes note of what a keeper event or reply says of memory (OOM_KILLS, MEMORY_PEAK). */
void cop_sandbox_note_memory(struct cop_sandbox *sb, const struct cop_msg *m);
/* Writes an event row and wakes those who follow /api/events and the sandbox log.  detail is borrowed, may be NULL. */
void cop_engine_event(struct cop_engine *e, const char *type, const char *sandbox_id, json_t *detail);

/* Hooks called by sandbox.c. */
/* context.c: a sandbox has just started (start_kernel) or was adopted after a daemon restart (rows are in the store). */
void cop_contexts_start(struct cop_sandbox *sb, bool start_kernel);
void cop_contexts_adopt(struct cop_sandbox *sb);
/* The sockets of its tree are there (meet.c).  ahead: it has no rows yet, its node says what kernels it has. */
void cop_contexts_meet(struct cop_sandbox *sb, bool ahead);
void cop_contexts_meet_done(struct cop_sandbox *sb);
void cop_contexts_end(struct cop_sandbox *sb, const char *reason); /* sandbox is ending: finish cells, free contexts */
json_t *cop_contexts_view(struct cop_sandbox *sb);
/* Each returns true when the key of the event belongs to it. */
bool cop_contexts_event(struct cop_sandbox *sb, struct cop_msg *event);
bool cop_commands_event(struct cop_sandbox *sb, struct cop_msg *event);
/* command.c: after adoption: entry is one command that the keeper still knows. */
void cop_commands_adopt(struct cop_sandbox *sb, const struct cop_msg *entry);
void cop_commands_adopted(struct cop_sandbox *sb); /* all entries were seen: rows still "running" become "lost" */
void cop_commands_end(struct cop_sandbox *sb, const char *reason);
/* True while somebody waits for a command, or one is being started. */
bool cop_commands_attached(struct cop_sandbox *sb);
/* The daemon stops, the sandbox lives on: free what is in memory, touch neither processes nor rows. */
void cop_contexts_detach(struct cop_sandbox *sb);
void cop_commands_detach(struct cop_sandbox *sb);

/* Keys at the keeper: "cmd_<10>" for commands, "ker_<10>" for kernels (one per generation). */
