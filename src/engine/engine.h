/* What a sandbox can do: the operations behind every dialect, free of HTTP.
 *
 * One engine per daemon, single-threaded on its event loop.  Every operation is asynchronous: it returns at once and calls `done`
 * exactly once, possibly before it returns, unless it was cancelled.  Parameters are copied before the call returns unless said
 * otherwise.  Results are JSON objects as in api/openapi.yaml (borrowed: json_incref to keep).
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

struct cop_engine;
struct cop_op; /* one running operation, owned by the engine until done */

/* err is NULL on success, result is NULL on failure. */
typedef void (*cop_op_fn)(json_t *result, const struct cop_error *err, void *userdata);
/* Progress of long operations (image builds): a JSON object with at least "stage" and "message". May be NULL. */
typedef void (*cop_progress_fn)(json_t *event, void *userdata);

struct cop_op_to {
        cop_op_fn done;
        cop_progress_fn progress;
        void *userdata;
};

/* The caller went away: `done` will not be called.  What happens to the work is the operation's own rule (a cell goes on unless
 * on_disconnect says otherwise, an image build is stopped).  Operations return NULL in *ret_op when they finished at once. */
void cop_op_cancel(struct cop_op *op);

struct cop_engine_config {
        const char *home;         /* COPPICE_HOME, absolute */
        const char *keeper_path;  /* coppice-keeper */
        const char *pack_path;    /* coppice-pack; NULL = nothing can be packed */
        const char *image_tool;   /* libexec/coppice-image */
        const char *recipes;      /* folder of recipes (images/) */
        uint32_t uid_base;        /* first host uid of all sandboxes, a multiple of 65536; 0 = 65536000 */
        unsigned slots;           /* how many sandboxes may live at a time, 65536 uids each; 0 = up to uid 2^31 */
        const char *compare_path; /* coppice-compare; NULL = files cannot be compared */
        const char *uid_claims;   /* file of the uid ranges in use on this machine; NULL = /run/coppice/uids */
        bool no_spare;            /* nothing is kept ready for the next fork (spare.c) */
};

/* Opens the store, adopts running keepers, ends what cannot be adopted. */
int cop_engine_new(struct cop_loop *loop, const struct cop_engine_config *config, struct cop_engine **ret,
                   struct cop_error *err);
struct cop_engine *cop_engine_free(struct cop_engine *e); /* sandboxes live on */

/* -- sandboxes: sandbox.c ------------------------------------------------------------------------------------------- */

struct cop_sandbox_params {
        const char *name;                /* NULL = none */
        const char *image;               /* id or name; NULL = "code-interpreter", or the node's */
        const char *node;                /* id or name of a snapshot to start from, memory included; NULL = none */
        const char *fork;                /* with node: id of the fork that makes it; NULL = none */
        unsigned branches;               /* with node: how many are made of it at once; 0 = 1 */
        json_t *labels, *metadata, *env; /* objects of strings (metadata: any), NULL = {}; borrowed */
        usec_t ttl;                      /* USEC_INFINITY = none */
        uint64_t memory;                 /* bytes, 0 = default 2 GiB */
        unsigned cpu_milli;              /* 0 = default: all CPUs, at least 1000 */
        unsigned pids;                   /* 0 = default 512 */
        unsigned nofile;                 /* 0 = default: min(65536, hard limit) */
        json_t *policy;                  /* as in api/openapi.yaml, borrowed; NULL = the defaults, or the node's */
        bool start_kernel;
        bool inherit_env; /* with node: its sandbox's environment, and its contexts' */
        bool no_reseed;   /* with node: Python's and numpy's generators go on as they were */
        bool cold;        /* boots although its image has a golden state */
        bool copy;        /* hidden, for a reader inside the engine (copy.c) */
        bool files_only;  /* with node: nothing is thawed */
        struct cop_sandbox
                *prepared; /* inside the engine: of cop_sandbox_prepare, taken over in any case; NULL = none */
};
void cop_sandbox_create(struct cop_engine *e, const struct cop_sandbox_params *p, struct cop_op_to to,
                        struct cop_op **ret_op);
void cop_sandbox_list(struct cop_engine *e, json_t *filter /* {state?, name?, labels?:{}, all?, limit?} */,
                      struct cop_op_to to);
void cop_sandbox_get(struct cop_engine *e, const char *ref, bool usage, struct cop_op_to to, struct cop_op **ret_op);
/* patch: {name?, labels?, metadata?, ttl_seconds?, memory?, cpus?, pids?}, already type-checked */
void cop_sandbox_update(struct cop_engine *e, const char *ref, json_t *patch, struct cop_op_to to,
                        struct cop_op **ret_op);
void cop_sandbox_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op);
void cop_sandbox_remove_all(struct cop_engine *e, struct cop_op_to to, struct cop_op **ret_op);
void cop_sandbox_kernelspecs(struct cop_engine *e, const char *ref, struct cop_op_to to);

/* -- states: sleep.c, branch.c, node.c, keep.c, gc.c ------------------------------------------------------------------- */

/* Processes and memory to disk; nothing is left running.  Waits up to 30 s for running cells and attached commands. */
void cop_sandbox_suspend(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op);
struct cop_resume_params {
        bool require_memory; /* fails rather than boot cold; the state is kept */
        const char *
                replay; /* "none", "all", "pure": which cells are run again after a cold boot; NULL = as the policy says */
        bool wait;      /* answer when its kernels answer, or will not, too */
        json_t *limits; /* {memory?, cpus?} as in a patch of cop_sandbox_update, from now on; NULL = as they are; borrowed */
};
/* done: Sandbox with memoryRestored, resumeReason, resume_ms, replay; after the replay, whose cells are its progress. */
void cop_sandbox_resume(struct cop_engine *e, const char *ref, const struct cop_resume_params *p, struct cop_op_to to,
                        struct cop_op **ret_op);
/* The source runs on. done: Node.  name may be NULL; lifetime 0: until it is removed. */
void cop_sandbox_snapshot(struct cop_engine *e, const char *ref, const char *name, bool files_only, usec_t lifetime,
                          struct cop_op_to to, struct cop_op **ret_op);
/* count live copies.  params: {name?, labels?, metadata?, ttl_seconds?, policy?, env? ("inherit"), reseed?}.  done: {node, sandboxes: [Sandbox or error]} */
void cop_sandbox_fork(struct cop_engine *e, const char *ref, json_t *params, unsigned count, struct cop_op_to to,
                      struct cop_op **ret_op);
void cop_node_branch(struct cop_engine *e, const char *node, json_t *params, unsigned count, struct cop_op_to to,
                     struct cop_op **ret_op);
/* In place: memory and files as in that node, or as before the last `steps` cells. done: as resume. */
void cop_sandbox_goto(struct cop_engine *e, const char *ref, const char *node, struct cop_op_to to,
                      struct cop_op **ret_op);
/* Where the last undo came from, while nothing new was run. */
void cop_sandbox_redo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op);
void cop_sandbox_undo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op);
/* It becomes persistent; drop_siblings: the other sandboxes of the fork it comes from are removed.  Wakes nothing.
 * done: {sandbox, removed: [{id, name?, removed} or with error]}. */
void cop_sandbox_keep(struct cop_engine *e, const char *ref, bool drop_siblings, struct cop_op_to to,
                      struct cop_op **ret_op);
/* Deletes what nobody needs, or only tells it. done: {dry_run, freed_bytes, items: [{kind, id, reason, bytes, removed}]}. */
void cop_engine_gc(struct cop_engine *e, bool dry_run, struct cop_op_to to, struct cop_op **ret_op);
/* What differs between two states.  Each is a sandbox, asleep or not, or a node; both are only read: files from their layers, variables
 * in hidden copies that are removed again. */
struct cop_diff_params {
        const char *a, *b;           /* id or name of a sandbox (as it is now), a snapshot, a node */
        const char *context;         /* whose variables; NULL = "default" */
        bool files, variables, text; /* text: differences of the contents of text files too */
};
void cop_diff(struct cop_engine *e, const struct cop_diff_params *p, struct cop_op_to to, struct cop_op **ret_op);
/* Copies files and variables of a state (as above) into a sandbox.  In this order, the first failure ends it: what was taken before it
 * stays.  done: {files: [path], variables: [{name, type}], bytes, timings}. */
#define COP_TAKE_MAX 100 /* files, and variables */
struct cop_take_params {
        const char *from;
        const char *context;       /* in both; NULL = "default" */
        json_t *files, *variables; /* arrays of strings, borrowed: absolute paths, names; NULL = none */
};
void cop_take(struct cop_engine *e, const char *ref, const struct cop_take_params *p, struct cop_op_to to,
              struct cop_op **ret_op);
/* sandbox_ref NULL: named snapshots, {snapshots: […]}; else {sandbox_id, head, nodes: […]}, oldest first. */
void cop_node_list(struct cop_engine *e, const char *sandbox_ref, struct cop_op_to to);
void cop_node_get(struct cop_engine *e, const char *ref, struct cop_op_to to);
/* A node that others stand on only loses its name. */
void cop_node_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op);

/* -- packs: pack.c ---------------------------------------------------------------------------------------------------- */

/* A node as one stream for another machine (base/pack.h), in constant memory. */
struct cop_packing;
typedef void (*cop_packing_opened_fn)(struct cop_packing *pack, const struct cop_error *err, void *userdata);
/* opened gets the stream to read from, or an error. */
void cop_node_pack(struct cop_engine *e, const char *ref, cop_packing_opened_fn opened, void (*more)(void *userdata),
                   void *userdata, struct cop_op **ret_op);
ssize_t cop_packing_read(struct cop_packing *p, char *buf, size_t n); /* as cop_record_read */
struct cop_unpack_params {
        const char *name; /* NULL = the pack's own, when that is free here */
        bool files_only;  /* a node of files, whatever the pack holds */
};
/* opened gets the stream to write to, to.userdata as its userdata; to.done the Node at the end. */
void cop_node_unpack(struct cop_engine *e, const struct cop_unpack_params *p, cop_packing_opened_fn opened,
                     void (*more)(void *userdata), struct cop_op_to to, struct cop_op **ret_op);
ssize_t cop_packing_write(struct cop_packing *p, const char *data, size_t n); /* as cop_file_stream_write */
void cop_packing_finish(struct cop_packing *p);                               /* all was written */
struct cop_packing *cop_packing_close(struct cop_packing *p);                 /* ends what is unfinished; takes NULL */

/* -- contexts: context.c -------------------------------------------------------------------------------------------- */

struct cop_context_params {
        const char *kernelspec; /* or */
        const char *language;   /* "python"; both NULL = default kernelspec */
        const char *name, *cwd;
        json_t *env; /* borrowed */
};
void cop_context_create(struct cop_engine *e, const char *ref, const struct cop_context_params *p, struct cop_op_to to,
                        struct cop_op **ret_op);
void cop_context_list(struct cop_engine *e, const char *ref, struct cop_op_to to);
void cop_context_get(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to);
void cop_context_remove(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                        struct cop_op **ret_op);
void cop_context_restart(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                         struct cop_op **ret_op);
void cop_context_interrupt(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                           struct cop_op **ret_op);

/* -- cells: cell.c -------------------------------------------------------------------------------------------------- */

struct cop_cell_params {
        const char *code; /* UTF-8, no NUL, at most COP_CELL_CODE_MAX */
        size_t code_len;
        const char *context; /* NULL = "default" */
        usec_t timeout;      /* 0 = default 30 s; at most 24 h */
        bool stdin_open, silent, no_history, detach, interrupt_on_disconnect;
        bool pure;         /* may be run again without harm: see replay */
        bool taken;        /* it brings in what another state had (take.c): it cannot be run again */
        size_t output_max; /* per stream, 0 = default 1 MiB; 1 KiB … 64 MiB */
        bool stream;       /* answer when the cell is queued: result {"id"}, to be followed with cop_record_open */
};
#define COP_CELL_CODE_MAX (16u << 20)
#define COP_CELL_TIMEOUT_MAX (24ULL * 3600 * USEC_PER_SEC)

/* done: the whole Cell when it ended (or, with stream or detach, the Cell as queued). */
void cop_cell_run(struct cop_engine *e, const char *ref, const struct cop_cell_params *p, struct cop_op_to to,
                  struct cop_op **ret_op);
void cop_cell_get(struct cop_engine *e, const char *ref, const char *cell, struct cop_op_to to);
void cop_cell_list(struct cop_engine *e, const char *ref, json_t *filter /* {context?, limit?, before?, outputs?} */,
                   struct cop_op_to to);
void cop_cell_interrupt(struct cop_engine *e, const char *ref, const char *cell, struct cop_op_to to);
void cop_cell_input(struct cop_engine *e, const char *ref, const char *cell, const char *value, struct cop_op_to to);
/* A streaming client went away: applies the cell's on_disconnect rule. */
void cop_cell_disconnected(struct cop_engine *e, const char *ref, const char *cell);

/* -- notebooks: notebook.c ------------------------------------------------------------------------------------------ */

/* The cells of a context that led to its present state as a notebook (nbformat 4.5), made while it is read; of a sandbox that sleeps
 * (it is not woken) or has ended, too.  context NULL = "default"; undone: with the cells that were undone.  more as with records. */
struct cop_notebook;
int cop_notebook_open(struct cop_engine *e, const char *ref, const char *context, bool undone,
                      void (*more)(void *userdata), void *userdata, struct cop_notebook **ret, struct cop_error *err);
/* Bytes, 0 at the end, -EAGAIN, or another negative errno when it cannot be completed. */
ssize_t cop_notebook_read(struct cop_notebook *n, char *buf, size_t size);
struct cop_notebook *cop_notebook_close(struct cop_notebook *n); /* takes NULL */

/* -- commands: command.c -------------------------------------------------------------------------------------------- */

struct cop_exec_params {
        const char *command;     /* shell string, or */
        const char *const *argv; /* NULL-terminated */
        const char *cwd, *user;  /* NULL = the image's defaults */
        json_t *env;             /* borrowed */
        const void *stdin_data;  /* NULL = /dev/null */
        size_t stdin_len;        /* at most 64 MiB */
        usec_t timeout;          /* 0 = default 30 s; USEC_INFINITY = none */
        size_t output_max;
        bool detach, kill_on_disconnect;
        bool restart; /* start it again when it ran in a state of which only the files came back; with detach alone */
        const char *restart_of; /* the command that it is started again for; NULL = none */
        bool stream;
};
void cop_command_run(struct cop_engine *e, const char *ref, const struct cop_exec_params *p, struct cop_op_to to,
                     struct cop_op **ret_op);
void cop_command_get(struct cop_engine *e, const char *ref, const char *pid_or_id, struct cop_op_to to);
void cop_command_list(struct cop_engine *e, const char *ref, struct cop_op_to to);
void cop_command_kill(struct cop_engine *e, const char *ref, const char *pid_or_id, int signo, bool group,
                      struct cop_op_to to, struct cop_op **ret_op);
void cop_command_disconnected(struct cop_engine *e, const char *ref, const char *id);

/* -- records: record.c ---------------------------------------------------------------------------------------------- */

/* The ordered events of one cell or command as NDJSON, from disk, followed live: a slow reader costs no memory. */
struct cop_record_reader;
enum cop_record_kind {
        COP_RECORD_CELL,
        COP_RECORD_COMMAND,
        COP_RECORD_SANDBOX_LOG, /* id ignored: everything that happened in the sandbox */
        COP_RECORD_EVENTS,      /* ref and id ignored: /api/events */
};
/* after_seq 0 = from the beginning.  more is called (from the loop, never from within read) when there is something to read
 * again.  Opening fails with cell_not_found, command_not_found… */
int cop_record_open(struct cop_engine *e, enum cop_record_kind kind, const char *ref, const char *id,
                    uint64_t after_seq, bool follow, void (*more)(void *userdata), void *userdata,
                    struct cop_record_reader **ret, struct cop_error *err);
/* Whole lines, each ending in \n and with "seq" as its first or last field (which the server reads for SSE ids), as many as fit; a
 * line longer than n is delivered in pieces.  Returns bytes, 0 at the end of the record, -EAGAIN when it has to wait for more, other
 * negative errno on failure. */
ssize_t cop_record_read(struct cop_record_reader *r, char *buf, size_t n);
struct cop_record_reader *cop_record_close(struct cop_record_reader *r); /* takes NULL */

/* -- files: files.c ------------------------------------------------------------------------------------------------- */

/* Operations without data: op and fields as in sandbox/wire.h "FILE"; done gets File. */
struct cop_file_params {
        unsigned op; /* enum cop_file_op */
        const char *path, *path2, *user;
        unsigned mode, flags, depth, count;
};
void cop_file_do(struct cop_engine *e, const char *ref, const struct cop_file_params *p, struct cop_op_to to,
                 struct cop_op **ret_op);

/* Data out of the sandbox (READ, TAR): `opened` gets File (size known for READ, -1 for TAR) and the stream, or an error. */
struct cop_file_stream;
typedef void (*cop_file_opened_fn)(json_t *file, struct cop_file_stream *stream, const struct cop_error *err,
                                   void *userdata);
void cop_file_read(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t offset,
                   uint64_t length, cop_file_opened_fn opened, void (*more)(void *userdata), void *userdata,
                   struct cop_op **ret_op);
ssize_t cop_file_stream_read(struct cop_file_stream *s, char *buf, size_t n); /* as cop_record_read */
/* Data into the sandbox (WRITE, UNTAR). length UINT64_MAX = unknown.  `opened` gets the stream to write to; `to.done` the File at the
 * end.  write returns bytes taken, -EAGAIN (more is called when there is room), or an error (then done tells what). */
void cop_file_write(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t length,
                    cop_file_opened_fn opened, void (*more)(void *userdata), struct cop_op_to to,
                    struct cop_op **ret_op);
ssize_t cop_file_stream_write(struct cop_file_stream *s, const char *data, size_t n);
void cop_file_stream_finish(struct cop_file_stream *s);                   /* all was written */
struct cop_file_stream *cop_file_stream_close(struct cop_file_stream *s); /* aborts an unfinished write; takes NULL */

/* -- images: image.c ------------------------------------------------------------------------------------------------ */

void cop_image_build(struct cop_engine *e, const char *recipe, const char *name, const char *mirror, bool force,
                     struct cop_op_to to, struct cop_op **ret_op);
void cop_image_import(struct cop_engine *e, const char *source, const char *name, struct cop_op_to to,
                      struct cop_op **ret_op);
void cop_image_list(struct cop_engine *e, struct cop_op_to to);
void cop_image_get(struct cop_engine *e, const char *ref, struct cop_op_to to);
void cop_image_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op);

/* Golden states: golden.c.  code NULL = imports numpy, pandas and matplotlib.pyplot where they exist. */
struct cop_warm_params {
        const char *code; /* UTF-8 without NUL, at most COP_WARM_CODE_MAX */
        size_t code_len;
        usec_t timeout; /* of the code; 0 = 300 s */
};
#define COP_WARM_CODE_MAX (64u << 10)
/* Replaces the one there is.  done: Image.  Cancelled, it leaves things as they were. */
void cop_image_warm(struct cop_engine *e, const char *ref, const struct cop_warm_params *p, struct cop_op_to to,
                    struct cop_op **ret_op);
/* Sandboxes made from it are not touched; node_not_found when there is none. */
void cop_image_cool(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op);

/* -- tokens, daemon: engine.c --------------------------------------------------------------------------------------- */

void cop_token_create(struct cop_engine *e, const char *name, usec_t lifetime /* USEC_INFINITY */, struct cop_op_to to,
                      struct cop_op **ret_op);
void cop_token_list(struct cop_engine *e, struct cop_op_to to);
void cop_token_remove(struct cop_engine *e, const char *id, struct cop_op_to to, struct cop_op **ret_op);
/* Constant-time check of a presented token: true when it is known and not expired. */
bool cop_token_check(struct cop_engine *e, const char *token);
void cop_engine_info(struct cop_engine *e, struct cop_op_to to);
void cop_engine_doctor(struct cop_engine *e, struct cop_op_to to);
