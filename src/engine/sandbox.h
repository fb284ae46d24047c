/* The life of a sandbox inside the engine: sandbox.c (finding, asking, changing), sandbox-start.c, sandbox-end.c,
 * adopt.c.
 *
 *      STARTING ──► RUNNING ──► ENDING ──► freed; its row says ended
 *          └──────────────────────┘
 *
 * A sandbox is freed only from the loop (on_finish_timer of sandbox-end.c), never inside cop_sandbox_end: callers may
 * go on using it until they return.
 */
#pragma once

#include "engine/internal.h"

#define COP_SLOT_IDS 65536u /* uids and gids of one sandbox */

#define COP_KEEP_ENDED 200 /* rows of ended sandboxes kept for reading */
#define COP_KEEP_LOGS 20   /* those of which the logs are kept, unless they were removed */

struct cop_sandbox_limits {
        uint64_t memory; /* bytes */
        unsigned cpu_milli, pids, nofile;
};

/* -- sandbox.c ----------------------------------------------------------------------------------------------------- */

/* The object of a row (stolen, also on failure), linked into the engine; state STARTING. */
int cop_sandbox_new(struct cop_engine *e, struct cop_sandbox_row *row, struct cop_sandbox **ret, struct cop_error *err);
/* Takes it out of those that are found and listed; without effect when it is not among them. */
void cop_sandbox_delist(struct cop_sandbox *sb);
/* Frees what is in memory; the keeper lives on. */
void cop_sandbox_drop(struct cop_sandbox *sb);
void cop_sandbox_drop_keeper(struct cop_sandbox *sb); /* and what was connected through it; it lives on */
/* kernelspecs and defaults of its image. */
int cop_sandbox_read_image(struct cop_sandbox *sb, struct cop_error *err);
/* Opens run/ipc and logs. */
int cop_sandbox_open_folders(struct cop_sandbox *sb, struct cop_error *err);
/* state is RUNNING now: serves those who waited. */
void cop_sandbox_now_running(struct cop_sandbox *sb);
/* Tells those who wait that it will not run. */
void cop_sandbox_answer_waiters(struct cop_sandbox *sb, const struct cop_error *err);
/* struct cop_keeper_events of a sandbox: userdata is the sandbox. */
void cop_sandbox_on_event(struct cop_msg *event, void *userdata);
void cop_sandbox_on_lost(const struct cop_error *err, void *userdata);
struct cop_sandbox *cop_sandbox_by_id(struct cop_engine *e, const char *id);
/* Any of memory, whatever its state. */
struct cop_sandbox *cop_sandbox_by_ref(struct cop_engine *e, const char *ref);

/* As cop_sandbox_update, of one that is suspended: limits hold from its next resume on. */
int cop_sandbox_patch_asleep(struct cop_sandbox *sb, json_t *patch, struct cop_error *err);

/* -- sandbox-params.c ---------------------------------------------------------------------------------------------- */

int cop_limits_check(const struct cop_sandbox_limits *l, struct cop_error *err);
char *cop_limits_to_json(const struct cop_sandbox_limits *l); /* malloc'd; NULL when out of memory */
void cop_limits_from_json(const char *text, struct cop_sandbox_limits *ret);
/* Checks labels, metadata and env and gives their text (malloc'd). object NULL = {}. */
int cop_labels_to_json(json_t *object, const char *field, char **ret, struct cop_error *err);
int cop_metadata_to_json(json_t *object, char **ret, struct cop_error *err);
int cop_env_to_json(json_t *object, char **ret, struct cop_error *err);
/* Names of live sandboxes are unique. */
int cop_sandbox_check_name(struct cop_engine *e, const char *name, const struct cop_sandbox *but,
                           struct cop_error *err);

/* -- sandbox-prepare.c --------------------------------------------------------------------------------------------- */

/* As the row of a sandbox like this one would be, with a new id, as far as a start needs it before there is a node; node: and as far as
 * it needs that.  NULL: no memory. */
struct cop_sandbox_row *cop_sandbox_row_like(const struct cop_sandbox_row *like, bool node);
/* Makes for a sandbox with the image, limits and working folder of this row, whatever its name, what can be made before there is a
 * node: for cop_sandbox_params.prepared, else to be unprepared.  NULL when it cannot, or not now. */
struct cop_sandbox *cop_sandbox_prepare(struct cop_engine *e, const struct cop_sandbox_row *like);
/* The same, and begun as the row's node.  It is ready when thawed_ahead is set. */
struct cop_sandbox *cop_sandbox_thaw_ahead(struct cop_engine *e, const struct cop_sandbox_row *like);
void cop_sandbox_unprepare(struct cop_sandbox *p); /* takes NULL */
/* Whether a sandbox with this row can go on from it, under its id and slot. */
bool cop_sandbox_prepared_like(const struct cop_sandbox *p, const struct cop_sandbox_row *row);
/* Keeper and folders are sb's, which has the same id; p is empty, and to be unprepared. */
void cop_sandbox_take_prepared(struct cop_sandbox *sb, struct cop_sandbox *p);
bool cop_sandbox_is_prepared(struct cop_engine *e, const char *id);
void cop_engine_prepared_drop(struct cop_engine *e); /* at shutdown, before cop_engine_adopt_drop */

/* -- spare.c ---------------------------------------------------------------------------------------------------------- */

struct cop_spare_branch {
        unsigned count;          /* how many of this state were asked for at once */
        char source[COP_ID_MAX]; /* the session that goes on, of which it is one; "" = of a state that stays as it is */
};
/* One with this row has just been made from memory: the next may be alike.  branch NULL: of its image's golden state. */
void cop_spare_make_like(struct cop_engine *e, const struct cop_sandbox_row *row,
                         const struct cop_spare_branch *branch);
void cop_spare_follow(struct cop_engine *e, const struct cop_node_row *head); /* a session has just got this head */
/* How many are there for sandboxes with this row. */
unsigned cop_spare_fits(const struct cop_engine *e, const struct cop_sandbox_row *row);
/* The spare when it fits, as cop_sandbox_prepare or cop_sandbox_thaw_ahead; else NULL. */
struct cop_sandbox *cop_spare_take(struct cop_engine *e, const struct cop_sandbox_row *row);
void cop_spare_spoiled(const struct cop_sandbox *p); /* its keeper was given up; if it is a spare, it goes soon */
void cop_spare_forget(struct cop_engine *e, const char *node); /* nothing begins as it any more */
void cop_spare_drop(struct cop_engine *e);                     /* at shutdown, before cop_engine_prepared_drop */

/* -- sandbox-start.c ----------------------------------------------------------------------------------------------- */

/* Stops a start under way; its caller gets err. */
void cop_sandbox_start_abort(struct cop_sandbox *sb, const struct cop_error *err);
void cop_sandbox_start_drop(struct cop_sandbox *sb); /* frees what it holds, tells nobody */

/* The parts of a start that waking shares.  Folders: made anew; those that are there already are kept. */
int cop_sandbox_make_folders(struct cop_sandbox *sb, struct cop_error *err);
int cop_sandbox_start_keeper(struct cop_sandbox *sb, struct cop_error *err);
/* The part of start_keeper after its uid range was claimed (uids_fd is borrowed). */
int cop_sandbox_spawn_keeper(struct cop_sandbox *sb, int uids_fd, const struct cop_keeper_events *events,
                             struct cop_error *err);
int cop_sandbox_send_prepare(struct cop_sandbox *sb, struct cop_error *err); /* PREPARE; nobody waits for the reply */
/* START; thaw_node: id of the node whose memory is thawed instead of starting an init, NULL = none; flags as in wire.h. */
int cop_sandbox_send_start(struct cop_sandbox *sb, const char *thaw_node, unsigned flags, cop_keeper_reply_fn fn,
                           void *userdata, struct cop_error *err);
/* A keeper that died says why on its stderr only: its last words are added to the message. */
void cop_sandbox_add_last_words(struct cop_sandbox *sb, struct cop_error *err);

/* -- sandbox-end.c ------------------------------------------------------------------------------------------------- */

/* Begins the end, or joins one that is under way.  reason: as ended_reason of the API.  op (may be NULL) gets the
 * Sandbox. */
void cop_sandbox_end(struct cop_sandbox *sb, const char *reason, struct cop_op *op);
/* Frees sb->end at shutdown. */
void cop_sandbox_end_drop(struct cop_sandbox *sb);
/* Forgets the oldest ended sandboxes beyond COP_KEEP_ENDED, and the logs beyond COP_KEEP_LOGS. */
void cop_engine_prune(struct cop_engine *e);

/* -- trash.c ------------------------------------------------------------------------------------------------------- */

int cop_trash_new(struct cop_engine *e, struct cop_error *err); /* and goes on with what an earlier daemon left */
void cop_trash_free(struct cop_engine *e);
/* Takes path out of sight at once and deletes it in a child process. A missing path is fine. */
void cop_trash_add(struct cop_engine *e, const char *path);
/* The same once the store is on disk: for what a row named until now. */
void cop_trash_add_durable(struct cop_engine *e, const char *path);

/* -- gc.c ---------------------------------------------------------------------------------------------------------- */

void cop_gc_drop(struct cop_engine *e); /* at shutdown, before its operation is answered */

/* -- policy.c ------------------------------------------------------------------------------------------------------ */

int cop_policy_new(struct cop_engine *e, struct cop_error *err);
void cop_policy_changed(struct cop_engine *e); /* an expires_at or an idle time changed */
/* Checks and completes a policy object of a caller on top of what was asked for before (old, may be NULL): text for the row. */
int cop_policy_to_json(const char *old, json_t *object, char **ret, struct cop_error *err);
void cop_policy_from_json(const char *text, struct cop_policy *ret); /* what it leaves out has its default */
json_t *cop_policy_view(const struct cop_policy *p);
/* last_activity_at, idle_at, retained_until, warning. */
void cop_policy_add_times(struct cop_sandbox *sb, json_t *view);
void cop_policy_purge(struct cop_engine *e); /* something was marked for cop_store_purge_step */

/* -- checkpoint.c -------------------------------------------------------------------------------------------------- */

/* A cell begins, after the state before it was named; "" = none. */
void cop_checkpoint_cell_begins(struct cop_sandbox *sb, char before[static COP_ID_MAX]);
/* The reply was sent.  before: as told when it began; failed: it died or hit its limit. */
void cop_checkpoint_cell_ended(struct cop_sandbox *sb, const char *before, bool failed);
/* before_cell: true when the next cell has to wait for a node. */
bool cop_checkpoint_first(struct cop_sandbox *sb);
void cop_checkpoint_drop(struct cop_sandbox *sb);
/* The state of this node is the present one (taken, thawed), or is not after all (failed). */
void cop_checkpoint_is_at(struct cop_sandbox *sb, const char *node);
void cop_checkpoint_is_not_at(struct cop_sandbox *sb, const char *node);
int64_t cop_checkpoint_next_ordinal(struct cop_sandbox *sb);
/* Deletes what the policy does not keep. */
void cop_checkpoint_thin(struct cop_sandbox *sb);

/* -- sleep.c ------------------------------------------------------------------------------------------------------- */

/* What keeps it awake: its description, or NULL. */
const char *cop_sandbox_busy_with(struct cop_sandbox *sb);
bool cop_sandbox_busy_with_cells(struct cop_sandbox *sb);         /* a cell runs or waits, or a kernel is on its way */
bool cop_sandbox_busy_with_running(const struct cop_sandbox *sb); /* a cell runs */
/* Suspends one that has been idle; a request that comes before it is frozen wins. */
void cop_sandbox_suspend_idle(struct cop_sandbox *sb);
/* Back to a node whatever its kernels are doing; logged, nobody waits. */
void cop_sandbox_restore(struct cop_sandbox *sb, const char *node);
/* The keeper was lost while it was being thawed: it sleeps again. */
void cop_sandbox_thaw_failed(struct cop_sandbox *sb, const struct cop_error *err);

/* Files and sockets of a sandbox that does not run: what it was is a node, or nothing. */
void cop_sandbox_discard_folders(struct cop_sandbox *sb);
void cop_sandbox_sleep_drop(struct cop_sandbox *sb);
void cop_sandbox_sleep_abort(struct cop_sandbox *sb,
                             const struct cop_error *err); /* it ends: tells who waits for its sleep */

/* -- resume.c ------------------------------------------------------------------------------------------------------ */

/* How it came back: the Resumed object of the API. */
json_t *cop_sandbox_resumed_view(struct cop_sandbox *sb);

/* -- replay.c ------------------------------------------------------------------------------------------------------ */

/* The contexts are there, their memory is not: gives them what is to be run again, if that is wanted. */
void cop_replay_begin(struct cop_sandbox *sb);
/* True when a replay is under way: op is answered with cop_sandbox_resumed_view at its end. */
bool cop_replay_wait(struct cop_sandbox *sb, struct cop_op *op);
void cop_replay_abort(struct cop_sandbox *sb, const struct cop_error *err); /* the sandbox ends: tells those who wait */
void cop_replay_drop(struct cop_sandbox *sb);

/* -- adopt.c ------------------------------------------------------------------------------------------------------- */

/* Asks the keeper what runs (LIST), connects kernels and commands to their rows, and makes the sandbox RUNNING. */
void cop_sandbox_take_over(struct cop_sandbox *sb);
int cop_engine_adopt(struct cop_engine *e, struct cop_error *err);
/* Ends what no row knows: its keeper (taken over; NULL = the one that listens in its folder, if any), cgroup, folder. */
void cop_engine_end_orphan(struct cop_engine *e, const char *id, struct cop_keeper *keeper);
void cop_engine_adopt_drop(struct cop_engine *e);

/* -- golden.c ------------------------------------------------------------------------------------------------------ */

/* The golden node that a new sandbox with these parameters (node NULL) and this row begins as.  NULL: it boots; *ret_why is the
 * parameter that is against it (a literal), NULL when there is no golden state. */
struct cop_node_row *cop_golden_for(struct cop_engine *e, const struct cop_sandbox_params *p,
                                    const struct cop_sandbox_row *row, const char **ret_why);
json_t *cop_golden_view(struct cop_engine *e, const struct cop_image_row *row); /* null when there is none */
/* No image names the node any more: it goes when nobody needs it. */
void cop_golden_release(struct cop_engine *e, const char *node);
void cop_golden_drop(struct cop_engine *e); /* at shutdown, after the operations */

/* -- image.c ------------------------------------------------------------------------------------------------------- */

/* The folder of an image and what image.json says of it (any may be NULL). */
int cop_image_lookup(struct cop_engine *e, const char *ref, struct cop_image_row **ret, json_t **ret_kernelspecs,
                     json_t **ret_defaults, struct cop_error *err);
/* A replaced image that no sandbox uses any more goes. */
void cop_image_release(struct cop_engine *e, const char *image_id);
void cop_images_sweep(struct cop_engine *e); /* at start: what an interrupted build left */
void cop_images_drop(struct cop_engine *e);  /* at shutdown: ends the builds */
