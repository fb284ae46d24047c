/* Nodes: saved states of sandboxes (node.c), and the sandboxes that sleep as one, are made from one, or go back to one (sleep.c, branch.c,
 * travel.c).
 *
 * Invariants of the commit of a node; the code names them by number:
 *      N1  a node's row is inserted only after the keeper said that all its files are synced; of a checkpoint or a fork: written
 *          (written_boot).  What alone needs those runs, and ends with the host; what outlives it, a suspended sandbox or a snapshot, is
 *          synced after them, and takes the mark away.  A start in another boot drops those that still have it
 *      N2  a folder below nodes/ without a row belongs to nobody: the next start of a daemon deletes it, unless a sandbox names it
 *          as pending_node, with which it goes
 *      N3  layers and memory of a node are never changed; what is no longer needed is deleted whole
 *      N4  a node is deleted only when no sandbox that has not ended (head, layers, redo), no other node (layers) and no image (golden)
 *          needs it, and nobody reads or packs it
 *      N5  a sandbox that is suspended has node_id set to a node of its own, and pending_node empty
 *      N6  a folder goes only when the end of its row is on disk
 *      N7  what lasts is acknowledged when the store is on disk; a suspend when its node is, because pending_node was synced with it
 */
#pragma once

#include "engine/context.h"
#include "engine/sandbox.h"

enum cop_node_reason {
        COP_NODE_SNAPSHOT,
        COP_NODE_CHECKPOINT,
        COP_NODE_SUSPEND,
        COP_NODE_FORK,
        COP_NODE_GOLDEN,
};

struct cop_node_params {
        enum cop_node_reason reason;
        bool files_only;
        bool end;         /* suspend: the tree ends with it */
        const char *name; /* NULL = none */
        usec_t lifetime;  /* 0 = for ever */
};

/* -- node.c ---------------------------------------------------------------------------------------------------------------- */

/* Freezes a running sandbox into a new node and makes that its head.  fn gets the row (borrowed), or the error; then nothing has
 * changed.  Called at most once, from the loop; not when the sandbox ends meanwhile and the engine is freed. */
typedef void (*cop_node_fn)(struct cop_node_row *row, const struct cop_error *err, void *userdata);
void cop_node_make(struct cop_sandbox *sb, const struct cop_node_params *p, cop_node_fn fn, void *userdata);
/* Calls fn (row NULL) when the nodes asked for so far are made; at once when there are none. */
void cop_node_after_makings(struct cop_sandbox *sb, cop_node_fn fn, void *userdata);
/* The keeper has the state of the node under way: what happens from now on is not in it. */
void cop_node_taken(struct cop_sandbox *sb);
/* No node under way waits for the disk. */
bool cop_node_soon_made(const struct cop_sandbox *sb);
void cop_node_makings_abort(struct cop_sandbox *sb, const struct cop_error *err); /* it ends: tells all who wait */
void cop_node_makings_drop(struct cop_sandbox *sb);
/* What a node's spec says of contexts becomes rows of this sandbox, in place of what it has; env: their environments too. */
int cop_node_restore_contexts(struct cop_sandbox *sb, const struct cop_node_row *node, bool env, struct cop_error *err);
int cop_node_forget_contexts(struct cop_sandbox *sb, struct cop_error *err); /* their rows */
/* As they would be: freed with cop_context_rows_free. */
int cop_node_contexts(const struct cop_sandbox *sb, const char *node, struct cop_context_row ***ret,
                      struct cop_error *err);
/* COP_PREPARE_*: what kernels thawed from it need in another sandbox. */
unsigned cop_node_prepare(const struct cop_node_row *node);
/* bad_request, name_taken; NULL is fine. */
int cop_node_check_name(struct cop_engine *e, const char *name, struct cop_error *err);
json_t *cop_node_view(const struct cop_node_row *row);
/* Deletes the node when nothing needs it and nobody named it, and then those of its ancestors that only served it. */
void cop_node_release(struct cop_engine *e, const char *id);
/* Its folder goes, whatever is in it: there is no row, or not any more. */
void cop_node_discard_folder(struct cop_engine *e, const char *id);
/* The same for all nodes that were made from this sandbox, which has ended, and those below it. */
void cop_nodes_release_of(struct cop_engine *e, const char *sandbox_id, const char *layers);
/* Nodes of other sandboxes, ended ones and forks, that only served as layers of this stack. */
void cop_nodes_release_layers(struct cop_engine *e, const char *layers);
/* A reader (copy.c) is done with it.  One that was made for that, or for a fork, goes when nothing needs it, and nothing else: its
 * ancestors may be where undo goes.  Of a sandbox that has ended meanwhile all go that it left because of the reader. */
void cop_node_release_read(struct cop_engine *e, const char *id);
/* A suspend was cut off by the end of the daemon: the row of its node, if the keeper completed it (N1). */
int cop_node_recover(struct cop_engine *e, const char *id, struct cop_node_row **ret, struct cop_error *err);
/* The same when it came to nothing: the folder goes with the mark (N2). */
void cop_node_discard_pending(struct cop_sandbox *sb);
/* Whether its sandbox, which has not ended, may still want to go back to it; or it was unpacked, and stays until it is removed. */
bool cop_node_wanted(struct cop_engine *e, const struct cop_node_row *row);
/* Deletes it if nobody needs it (N4) and nobody may want it; false when it stays. */
bool cop_node_collect(struct cop_engine *e, const char *id);
/* Its folder is being written; there is no row yet. */
bool cop_node_is_being_made(struct cop_engine *e, const char *id);
/* Nobody wants it any more: deleted with those of its ancestors that only served it, or, when something needs it, without a name
 * and an end from now on.  1; 0 when nothing was to be done. */
int cop_node_give_up(struct cop_engine *e, const struct cop_node_row *row, struct cop_error *err);
/* Whether all of it is there: not when it was only written (N1), and the host went down before it was on disk. */
bool cop_node_is_whole(struct cop_engine *e, const struct cop_node_row *row);
/* At start, when sandboxes that slept on one have ended: rows of nodes that are not whole; and folders without a row (N2). */
void cop_nodes_drop_torn(struct cop_engine *e);
void cop_nodes_sweep(struct cop_engine *e);

/* -- flatten.c: deep stacks of layers ------------------------------------------------------------------------------------------ */

/* A stack is a JSON array, topmost first, of "<node>" (its folder layer/) and "<node>/flat" (its whole stack as one). */
void cop_layer_node(const char *layer, char ret[static COP_ID_MAX]);
int cop_layer_path(const struct cop_engine *e, const char *layer, char *path, size_t size, struct cop_error *err);
/* The same stack, shorter when a node in it was flattened since; malloc'd, NULL when out of memory. */
char *cop_layers_cut(struct cop_engine *e, const char *layers);
bool cop_layers_too_deep(const char *layers); /* to be flattened before it is used again */
/* fn (may be NULL) gets 0 or a negative errno, perhaps at once. */
typedef void (*cop_flattened_fn)(int result, void *userdata);
void cop_node_flatten(struct cop_engine *e, const char *node_id, cop_flattened_fn fn, void *userdata);
void cop_node_flatten_if_deep(struct cop_engine *e, const struct cop_node_row *node);
void cop_flattenings_drop(struct cop_engine *e);

/* -- hold.c: nodes that are read just now ---------------------------------------------------------------------------------- */

/* From now on nothing deletes the node or a layer that it stands on, until it is let go. */
struct cop_hold;
int cop_node_hold(struct cop_engine *e, const struct cop_node_row *row, struct cop_hold **ret, struct cop_error *err);
void cop_node_let_go(struct cop_hold *h); /* takes NULL */
/* Asked by who wants to delete it: true when somebody reads it.  It then goes by itself as soon as nobody does, with ancestors that only
 * served it, or alone. */
bool cop_node_held_back(struct cop_engine *e, const char *node, bool alone);
void cop_holds_drop(struct cop_engine *e); /* at shutdown */

/* -- retention.c ----------------------------------------------------------------------------------------------------------- */

/* Gives up the snapshots whose time is over; when the next one's is, 0 = there is none. */
usec_t cop_snapshots_expire(struct cop_engine *e, usec_t now);
/* Gives up what policy.snapshot_keep does not keep. */
void cop_snapshots_thin(struct cop_sandbox *sb);

/* -- history.c ------------------------------------------------------------------------------------------------------------- */

/* The cells that led to its present state, as ranges (see history.c), also for one that has ended.  ended: up to the newest cell that
 * has ended, else the newest of all. */
json_t *cop_history_of_sandbox(struct cop_engine *e, const struct cop_sandbox_row *row, bool ended);
struct cop_cell_range cop_history_range(json_t *history, size_t i); /* borrows from it */
/* From now on its state goes on from this node's.  The caller saves the row. */
void cop_history_begin(struct cop_engine *e, struct cop_sandbox_row *row, const struct cop_node_row *node);
/* The last cell of the present state that has ended; ret_new: it has run since the sandbox last went back, or was made. */
void cop_history_last_cell(struct cop_sandbox *sb, char ret[static COP_STORE_ID_MAX], bool *ret_new);
/* How many cells of this history came after the state of a node that it leads through. */
int cop_history_since(struct cop_engine *e, json_t *history, const struct cop_node_row *node, uint64_t *ret,
                      struct cop_error *err);
/* Its cells that ran in this generation of a context, at most of->limit of the newest, oldest first (cop_store_cell_made). */
int cop_history_cells(struct cop_engine *e, json_t *history, const struct cop_cell_range *of,
                      struct cop_cell_row ***ret, struct cop_error *err);
/* Sandboxes of which cells are not recorded any more: an array of ids. */
json_t *cop_history_missing(struct cop_engine *e, json_t *history);

/* -- sleep.c --------------------------------------------------------------------------------------------------------------- */

/* Wakes a suspended sandbox; joins a waking under way.  Waiters of the sandbox are served in the end. */
void cop_sandbox_wake(struct cop_sandbox *sb);
/* The parts that travel.c shares.  sleep_new: the object of a transition; resume_head: begins to thaw row->node_id, with no keeper left. */
int cop_sandbox_sleep_new(struct cop_sandbox *sb, struct cop_error *err);
void cop_sandbox_resume_head(struct cop_sandbox *sb);
/* /run/coppice/generation inside: programs can watch it to learn that they were thawed. */
void cop_sandbox_write_generation(struct cop_sandbox *sb); /* once per start */
/* After a daemon's restart: a row that is suspended, or was in the middle of a transition. */
void cop_sandbox_adopt_sleeping(struct cop_sandbox *sb, const char *state);

/* -- resume.c -------------------------------------------------------------------------------------------------------------- */

/* A cop_sandbox_fn: answers the cop_op that is its userdata with how it was resumed. */
void cop_sandbox_answer_resumed(struct cop_sandbox *sb, const struct cop_error *err, void *userdata);
