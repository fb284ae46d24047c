/* What Coppice remembers: images, sandboxes, contexts, cells, commands, events and tokens, in one SQLite file.
 *
 * Rows are plain data.  Ids and states are fixed arrays; every other string is malloc'd and owned by the row (NULL =
 * none). Columns that hold JSON are opaque text to the store.  Times are CLOCK_REALTIME microseconds, 0 = not yet or
 * never. Functions that return a row or a list give malloc'd objects, freed with cop_<kind>_row_free /
 * cop_<kind>_rows_free; a list is a NULL-terminated array of rows, also when it is empty.  Rows passed in are borrowed.
 *
 * Errors: disk_full, no_memory, io_error (with the path), and per function what is said there.  A function that fails
 * has changed nothing; inside a transaction the caller rolls back.  One thread.  Committed is durable against a crash
 * of the daemon at once, and against a crash of the host after the next sync (cop_store_sync…); what a crash of the host takes is
 * always the newest commits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define COP_STORE_ID_MAX 32
#define COP_STORE_STATE_MAX 16

struct cop_store;

/* Opens or makes the file (mode 0600), brings an older schema up to date.  A newer schema than ours, or a file that is
 * no database, is refused by name.  Readers of other processes are welcome; a second writer is kept out by the engine.
 */
int cop_store_open(const char *path, struct cop_store **ret, struct cop_error *err);
struct cop_store *cop_store_close(struct cop_store *s); /* takes NULL; rolls back what is open; returns NULL */

/* Several changes as one.  No nesting. */
int cop_store_begin(struct cop_store *s, struct cop_error *err);
int cop_store_commit(struct cop_store *s, struct cop_error *err); /* on failure everything is rolled back */
void cop_store_rollback(struct cop_store *s);                     /* nothing happens when none is open */

/* Has everything that was committed written to disk by a thread.  The number is greater than all before it; the descriptor (borrowed)
 * becomes readable when one is through, and sync_done then says up to which.  io_error stays: nothing is sure from then on. */
uint64_t cop_store_sync_begin(struct cop_store *s);
int cop_store_sync_fd(const struct cop_store *s);
int cop_store_sync_done(struct cop_store *s, uint64_t *ret_upto, struct cop_error *err); /* *ret_upto is set always */
/* The same, waiting: at a start and at an end only. */
int cop_store_sync(struct cop_store *s, struct cop_error *err);

/* -- images -------------------------------------------------------------------------------------------------------- */

struct cop_image_row {
        char id[COP_STORE_ID_MAX]; /* im_… */
        char *name; /* unique; NULL = replaced by a newer image of the name, kept while sandboxes use it */
        char *digest;
        char *path;     /* folder that holds rootfs/ */
        char *info;     /* JSON: what a sandbox needs of image.json: defaults, kernelspecs, os, … */
        char *packages; /* JSON: its long lists; for insert, NULL in rows read (see _packages) */
        uint64_t size_bytes, files;
        usec_t created_at;
        char golden_node[COP_STORE_ID_MAX]; /* new sandboxes are thawed from it; "" = none */
        char *golden;                       /* JSON: how it was made */
};
/* Takes the name away from an older image. */
int cop_store_image_insert(struct cop_store *s, const struct cop_image_row *row, struct cop_error *err);
/* By id or name; image_not_found. */
int cop_store_image_get(struct cop_store *s, const char *ref, struct cop_image_row **ret, struct cop_error *err);
/* malloc'd; NULL when there are none. */
int cop_store_image_packages(struct cop_store *s, const char *id, char **ret, struct cop_error *err);
int cop_store_image_list(struct cop_store *s, struct cop_image_row ***ret, struct cop_error *err); /* oldest first */
/* golden_node and golden.  image_not_found. */
int cop_store_image_set_golden(struct cop_store *s, const struct cop_image_row *row, struct cop_error *err);
int cop_store_image_delete(struct cop_store *s, const char *id, struct cop_error *err);
struct cop_image_row *cop_image_row_free(struct cop_image_row *row);
struct cop_image_row **cop_image_rows_free(struct cop_image_row **rows);

/* -- sandboxes ----------------------------------------------------------------------------------------------------- */

struct cop_sandbox_row {
        char id[COP_STORE_ID_MAX]; /* sb_… */
        char state
                [COP_STORE_STATE_MAX]; /* "starting", "running", "suspending", "suspended", "resuming", "ending", "ended" */
        char image_id[COP_STORE_ID_MAX];
        char node_id[COP_STORE_ID_MAX]; /* the newest state saved of it, or the one it was thawed from; "" = none */
        char pending_node[COP_STORE_ID_MAX]; /* the node that a suspend or resume under way is about; "" = none */
        char *name;                          /* unique among those starting or running */
        char *image_name;                    /* at creation */
        char *labels, *metadata, *env;       /* JSON objects */
        char *limits;                        /* JSON object: memory_bytes, cpus, pids, nofile */
        char *user, *workdir;                /* defaults of the image */
        char *layers; /* JSON array: ids of the nodes below its upper directory, topmost first; NULL = none */
        char *policy; /* JSON object: idle_seconds, checkpoints, persistent, …; NULL = the defaults */
        char origin_node[COP_STORE_ID_MAX]; /* the node it was made from; "" = its image */
        char fork_id[COP_STORE_ID_MAX];     /* fk_…, the same in all that one fork made; "" = not made by one */
        char *redo;    /* JSON array: nodes that undo left, the next one to redo last; NULL = none */
        char *history; /* JSON object: the cells that led to its state (engine/history.c); NULL = all of its own */
        usec_t last_activity_at; /* kept while it sleeps */
        usec_t warned_until;     /* the end of its sleep that an event has told of; 0 = none */
        char *boot_id;           /* of the host when it started */
        char *ended_reason;
        unsigned slot; /* uid range; unique among those not ended */
        usec_t ttl;    /* 0 = none */
        usec_t expires_at;
        usec_t created_at, started_at, ended_at;
        usec_t start_time;   /* µs from the request to running */
        uint64_t generation; /* the highest of its kernels; grows when memory was lost */
};
/* name_taken; -EEXIST internal when the id or slot is in use (choose another). */
int cop_store_sandbox_insert(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err);
/* The smallest slot, at least `from` and below `count`, that no live sandbox has; too_many when all are taken. */
int cop_store_sandbox_free_slot(struct cop_store *s, unsigned from, unsigned count, unsigned *ret,
                                struct cop_error *err);
int cop_store_sandbox_set_slot(struct cop_store *s, const char *id, unsigned slot, struct cop_error *err);
/* -> running, with started_at, start_time, expires_at. */
int cop_store_sandbox_started(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err);
int cop_store_sandbox_ending(struct cop_store *s, const char *id, struct cop_error *err);
/* -> ended; cells and commands that were under way become "lost".  purge: its contexts, cells and commands go, by and by
 * (cop_store_purge_step). */
int cop_store_sandbox_ended(struct cop_store *s, const char *id, usec_t at, const char *reason, bool purge,
                            struct cop_error *err);
/* state, node_id, origin_node, pending_node, layers, boot_id, redo, history, last_activity_at: the steps of suspend, resume, undo
 * and snapshot. */
int cop_store_sandbox_set_node(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err);
/* name, labels, metadata, limits, policy, ttl, expires_at, warned_until.  name_taken. */
int cop_store_sandbox_update(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err);
int cop_store_sandbox_set_generation(struct cop_store *s, const char *id, uint64_t generation, struct cop_error *err);
/* By id (also ended ones), or by name: the one starting or running, else the one of that name that ended last.
 * sandbox_not_found. */
int cop_store_sandbox_get(struct cop_store *s, const char *ref, struct cop_sandbox_row **ret, struct cop_error *err);
/* Newest first.  live: not ended; all: both. limit 0 = 1000. */
enum cop_store_which {
        COP_STORE_LIVE,
        COP_STORE_ENDED,
        COP_STORE_ALL,
};
int cop_store_sandbox_list(struct cop_store *s, enum cop_store_which which, unsigned limit,
                           struct cop_sandbox_row ***ret, struct cop_error *err);
/* How many live sandboxes and saved states use the image, its own golden one not counted; ids (may be NULL) gets as many of theirs as fit, as "sb_a, sb_b". */
int cop_store_image_users(struct cop_store *s, const char *image_id, char *ids, size_t ids_size, unsigned *ret_count,
                          struct cop_error *err);
/* The ended sandboxes but for the newest `keep`: what may be forgotten. */
int cop_store_sandbox_prunable(struct cop_store *s, unsigned keep, struct cop_sandbox_row ***ret,
                               struct cop_error *err);
/* At once, with everything below it: for one that nothing has run in. */
int cop_store_sandbox_delete(struct cop_store *s, const char *id, struct cop_error *err);
/* The same by and by. */
int cop_store_sandbox_forget(struct cop_store *s, const char *id, struct cop_error *err);
/* Deletes a little of what was given up, at most one cell: 1 when there may be more, 0 when all is gone. */
int cop_store_purge_step(struct cop_store *s, struct cop_error *err);
struct cop_sandbox_row *cop_sandbox_row_free(struct cop_sandbox_row *row);
struct cop_sandbox_row **cop_sandbox_rows_free(struct cop_sandbox_row **rows);

/* -- nodes ----------------------------------------------------------------------------------------------------------- */

struct cop_node_row {
        char id[COP_STORE_ID_MAX];         /* nd_… */
        char sandbox_id[COP_STORE_ID_MAX]; /* of the sandbox whose state it is; that may be gone */
        char parent_id[COP_STORE_ID_MAX];  /* "" = a root */
        char kind[COP_STORE_STATE_MAX];    /* "memory", "files" */
        char reason[COP_STORE_STATE_MAX];  /* "snapshot", "checkpoint", "suspend", "fork", "golden" */
        char image_id[COP_STORE_ID_MAX];
        char cell_id[COP_STORE_ID_MAX]; /* the last cell that had ended; "" = none */
        int64_t seq;                    /* given by the store */
        char *name;                     /* of a snapshot; unique; NULL = none */
        char *layers;                   /* JSON array of node ids, topmost first, its own included */
        char *spec;                     /* JSON: what a sandbox made from it needs: contexts, limits, env, … */
        usec_t created_at;
        usec_t expires_at;                        /* 0 = never */
        usec_t pause, duration;                   /* how long the source stood still, and the whole of it */
        uint64_t memory_bytes, file_bytes, files; /* its own */
        int64_t ordinal;                          /* one more than its parent's */
        char written_boot[40]; /* "" = it is on disk, else the boot id of the host in which it was only written */
};
/* The row is what makes a node visible: insert it once its files are synced.  name_taken. */
int cop_store_node_insert(struct cop_store *s, struct cop_node_row *row /* seq is set */, struct cop_error *err);
/* By id or name; node_not_found. */
int cop_store_node_get(struct cop_store *s, const char *ref, struct cop_node_row **ret, struct cop_error *err);
struct cop_node_filter {
        const char *sandbox_id; /* NULL = any */
        const char *reason;     /* NULL = any */
        bool named;             /* only snapshots with a name */
        bool brief;             /* spec is left out (""): what contexts there were, and the like, may be long */
};
/* In order of seq. */
int cop_store_node_list(struct cop_store *s, const struct cop_node_filter *f, struct cop_node_row ***ret,
                        struct cop_error *err);
/* The seq of the newest, 0 = there is none; all up to that seq are on disk now; those that were only written, in another boot. */
int cop_store_node_newest(struct cop_store *s, int64_t *ret_seq, struct cop_error *err);
int cop_store_nodes_synced(struct cop_store *s, int64_t upto, struct cop_error *err);
int cop_store_nodes_written_before(struct cop_store *s, const char *boot_id, struct cop_node_row ***ret,
                                   struct cop_error *err);
int cop_store_node_set_layers(struct cop_store *s, const char *id, const char *layers, struct cop_error *err);
/* It is no snapshot of anybody's any more: without a name and an end, and what was unpacked only serves as a layer. */
int cop_store_node_give_up(struct cop_store *s, const char *id, struct cop_error *err);
/* Those whose time is over, in that order; and the time of the next, 0 = none. */
int cop_store_node_expired(struct cop_store *s, usec_t now, struct cop_node_row ***ret, struct cop_error *err);
int cop_store_node_next_expiry(struct cop_store *s, usec_t *ret, struct cop_error *err);
/* 1 when a sandbox that has not ended has it as head, layer or to redo, another node as a layer, or an image as its golden one.  (A parent is no need: images
 * and layers of nodes hold links of their own.) */
int cop_store_node_in_use(struct cop_store *s, const char *id, struct cop_error *err);
/* The oldest node whose last cell is this one, of this sandbox if there is one: "" = none. */
int cop_store_node_after_cell(struct cop_store *s, const char *sandbox_id, const char *cell_id,
                              char ret[static COP_STORE_ID_MAX], struct cop_error *err);
/* Its children become those of its parent. */
int cop_store_node_delete(struct cop_store *s, const char *id, struct cop_error *err);
struct cop_node_row *cop_node_row_free(struct cop_node_row *row);
struct cop_node_row **cop_node_rows_free(struct cop_node_row **rows);

/* -- contexts ------------------------------------------------------------------------------------------------------ */

struct cop_context_row {
        char sandbox_id[COP_STORE_ID_MAX];
        char id[COP_STORE_ID_MAX]; /* ctx_… or "default"; unique within the sandbox */
        char state[COP_STORE_STATE_MAX];
        char kernel_key[COP_STORE_ID_MAX]; /* at the keeper; "" = no kernel */
        char *name;
        char *kernelspec, *language, *cwd;
        char *env;        /* JSON object */
        char *kernel_dir; /* folder below run/ipc */
        char *key;        /* HMAC key of the connection, hex */
        char *session;    /* session id of our client */
        char *state_lost; /* JSON; NULL = nothing to tell */
        uint64_t generation;
        int64_t execution_count;
        int64_t kernel_pid; /* inside; 0 = none */
        usec_t created_at, last_activity_at;
};
/* -EEXIST invalid_state when the id is taken. */
int cop_store_context_insert(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err);
/* Every column but sandbox_id, id, created_at. context_not_found. */
int cop_store_context_update(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err);
/* What changes with each cell: state, execution_count, state_lost, last_activity_at. */
int cop_store_context_touch(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err);
int cop_store_context_list(struct cop_store *s, const char *sandbox_id, struct cop_context_row ***ret,
                           struct cop_error *err); /* oldest first */
int cop_store_context_delete(struct cop_store *s, const char *sandbox_id, const char *id, struct cop_error *err);
struct cop_context_row *cop_context_row_free(struct cop_context_row *row);
struct cop_context_row **cop_context_rows_free(struct cop_context_row **rows);

/* -- cells --------------------------------------------------------------------------------------------------------- */

struct cop_cell_row {
        char id[COP_STORE_ID_MAX]; /* cell_… */
        char sandbox_id[COP_STORE_ID_MAX];
        char context_id[COP_STORE_ID_MAX];
        char status[COP_STORE_STATE_MAX]; /* "queued", "running", … */
        int64_t seq;                      /* given by the store: grows with every cell of all sandboxes */
        char *code;                       /* UTF-8 without NUL; code_len bytes */
        size_t code_len;
        char *options;           /* JSON: timeout, output_max, … as asked for */
        char *msg_id;            /* of the execute_request, once sent */
        char *summary;           /* JSON: everything of the Cell but code and outputs; set at the end */
        char *outputs;           /* JSON array: the kept outputs; NULL until the end, and when a list left them out */
        char *record;            /* name of the record file below logs/ */
        int64_t execution_count; /* -1 = none */
        uint64_t generation;
        usec_t created_at, started_at, ended_at;
        uint64_t log_bytes; /* of the record file */
        bool log_complete;
        char replay_of[COP_STORE_ID_MAX]; /* it runs that cell again after a cold boot; "" = it was asked for */
        bool pure;                        /* its caller said that it may be run again without harm */
};
int cop_store_cell_insert(struct cop_store *s, struct cop_cell_row *row /* seq is set */, struct cop_error *err);
/* -> row's status, msg_id, generation, started_at */
int cop_store_cell_start(struct cop_store *s, const struct cop_cell_row *row, struct cop_error *err);
/* -> row's status, execution_count, generation, ended_at, summary, outputs, log_bytes, log_complete; with a context (may be NULL)
 * also what cop_store_context_touch writes of it, both or none. */
int cop_store_cell_end(struct cop_store *s, const struct cop_cell_row *row, const struct cop_context_row *context,
                       struct cop_error *err);
/* cell_not_found, also when it belongs to another sandbox. */
int cop_store_cell_get(struct cop_store *s, const char *sandbox_id, const char *id, struct cop_cell_row **ret,
                       struct cop_error *err);
struct cop_cell_filter {
        const char *sandbox_id;
        const char *context_id; /* NULL = any */
        const char *status;     /* NULL = any */
        int64_t before_seq;     /* 0 = from the newest */
        int64_t after_seq;      /* 0 = no lower bound */
        unsigned limit;         /* 0 = 100 */
        bool open;              /* only those not ended */
        bool oldest_first;      /* which end the limit keeps; the answer is always in order of seq, oldest first */
        bool code, outputs;     /* read these columns */
        bool originals;         /* no replays */
};
int cop_store_cell_list(struct cop_store *s, const struct cop_cell_filter *f, struct cop_cell_row ***ret,
                        struct cop_error *err);
/* Cells of a sandbox with after < seq <= upto, as a history names them. */
struct cop_cell_range {
        const char *sandbox_id;
        int64_t after, upto;
        /* cop_store_cell_made only: */
        const char *context_id;
        uint64_t generation;
        unsigned limit; /* of the newest */
};
/* How many of them ran and ended; replays are no cells of their own. */
int cop_store_cell_count(struct cop_store *s, const struct cop_cell_range *range, uint64_t *ret, struct cop_error *err);
/* Those that ran in this generation of the context, replays too, oldest first.  Only seq, ids, status, generation, replay_of, pure and
 * options. */
int cop_store_cell_made(struct cop_store *s, const struct cop_cell_range *range, struct cop_cell_row ***ret,
                        struct cop_error *err);
/* seq of the sandbox's newest cell, of those that have ended when `ended`; 0 = it has none. */
int cop_store_cell_newest(struct cop_store *s, const char *sandbox_id, bool ended, int64_t *ret, struct cop_error *err);
/* 1 when this cell of the sandbox is still recorded, else 0. */
int cop_store_cell_recorded(struct cop_store *s, const char *sandbox_id, int64_t seq, struct cop_error *err);
struct cop_cell_row *cop_cell_row_free(struct cop_cell_row *row);
struct cop_cell_row **cop_cell_rows_free(struct cop_cell_row **rows);

/* -- commands ------------------------------------------------------------------------------------------------------ */

struct cop_command_row {
        char id[COP_STORE_ID_MAX]; /* cmd_…, unique in its sandbox: a fork has its source's; also its key at the keeper */
        char sandbox_id[COP_STORE_ID_MAX];
        char status[COP_STORE_STATE_MAX]; /* "running", "exited", "timeout", "killed", "lost" */
        int64_t seq;                      /* given by the store */
        int64_t pid;                      /* inside; 0 = never started */
        char *spec;    /* JSON: argv or command, cwd, user, env, timeout, detached, … as asked for */
        char *summary; /* JSON: what else the Command object says; NULL until the end */
        int exit_code; /* -1 = none */
        int signal;    /* 0 = none */
        bool detached;
        usec_t started_at, ended_at;
        uint64_t stdout_bytes, stderr_bytes, log_bytes;
        bool log_complete;
};
int cop_store_command_insert(struct cop_store *s, struct cop_command_row *row /* seq is set */, struct cop_error *err);
int cop_store_command_set_pid(struct cop_store *s, const char *sandbox_id, const char *id, int64_t pid,
                              struct cop_error *err);
/* -> status, summary, exit_code, signal, ended_at, *_bytes, log_complete */
int cop_store_command_end(struct cop_store *s, const struct cop_command_row *row, struct cop_error *err);
/* By id, or by pid: the newest of that pid.  command_not_found. */
int cop_store_command_get(struct cop_store *s, const char *sandbox_id, const char *pid_or_id,
                          struct cop_command_row **ret, struct cop_error *err);
struct cop_command_filter {
        const char *sandbox_id;
        const char *status; /* NULL = any */
        int64_t before_seq, after_seq;
        unsigned limit;    /* 0 = 1000 */
        bool oldest_first; /* as in cop_cell_filter */
};
int cop_store_command_list(struct cop_store *s, const struct cop_command_filter *f, struct cop_command_row ***ret,
                           struct cop_error *err);
struct cop_command_row *cop_command_row_free(struct cop_command_row *row);
struct cop_command_row **cop_command_rows_free(struct cop_command_row **rows);

/* -- events -------------------------------------------------------------------------------------------------------- */

#define COP_STORE_EVENTS_KEEP 20000 /* older ones go */

struct cop_event_row {
        int64_t id; /* grows, never used twice */
        usec_t at;
        char *type;
        char *detail;                      /* JSON object or NULL */
        char sandbox_id[COP_STORE_ID_MAX]; /* "" = none */
};
int cop_store_event_add(struct cop_store *s, usec_t at, const char *type, const char *sandbox_id, const char *detail,
                        int64_t *ret_id, struct cop_error *err);
/* Those with an id above after, oldest first; sandbox_id NULL = all; limit 0 = 1000. */
int cop_store_event_list(struct cop_store *s, int64_t after, const char *sandbox_id, unsigned limit,
                         struct cop_event_row ***ret, struct cop_error *err);
struct cop_event_row *cop_event_row_free(struct cop_event_row *row);
struct cop_event_row **cop_event_rows_free(struct cop_event_row **rows);

/* -- tokens -------------------------------------------------------------------------------------------------------- */

struct cop_token_row {
        char id[COP_STORE_ID_MAX]; /* tok_… */
        char sha256[65];           /* hex, of the token's text */
        char *name;
        usec_t created_at, expires_at; /* expires_at 0 = never */
};
int cop_store_token_insert(struct cop_store *s, const struct cop_token_row *row, struct cop_error *err);
int cop_store_token_list(struct cop_store *s, struct cop_token_row ***ret, struct cop_error *err); /* oldest first */
int cop_store_token_delete(struct cop_store *s, const char *id, struct cop_error *err);            /* token_not_found */
struct cop_token_row *cop_token_row_free(struct cop_token_row *row);
struct cop_token_row **cop_token_rows_free(struct cop_token_row **rows);

/* _cleanup_(cop_cell_row_freep) struct cop_cell_row *row = NULL; */
#define COP_STORE_CLEANUP(kind)                                                  \
        static inline void cop_##kind##_row_freep(struct cop_##kind##_row **r)   \
        {                                                                        \
                *r = cop_##kind##_row_free(*r);                                  \
        }                                                                        \
        static inline void cop_##kind##_rows_freep(struct cop_##kind##_row ***r) \
        {                                                                        \
                *r = cop_##kind##_rows_free(*r);                                 \
        }                                                                        \
        struct cop_semicolon_eater
COP_STORE_CLEANUP(image);
COP_STORE_CLEANUP(sandbox);
COP_STORE_CLEANUP(node);
COP_STORE_CLEANUP(context);
COP_STORE_CLEANUP(cell);
COP_STORE_CLEANUP(command);
COP_STORE_CLEANUP(event);
COP_STORE_CLEANUP(token);
