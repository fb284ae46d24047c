/* goto, undo, redo: the present tree ends, and another node is resumed in its place, memory and files.
 *
 * What was there is not lost with it: undo first sees to it that the present state is a node, and redo goes back to that as long as
 * nothing new was run.  history.c tells the cells that ran since apart from those that were undone.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#define STOP_DEADLINE (10 * USEC_PER_SEC)
#define REDO_MAX 64

struct travel {
        struct cop_engine *engine;
        struct cop_op *op;           /* NULL: nobody waits */
        char *node;                  /* owned; id or name, or NULL */
        unsigned undo, redo;         /* steps */
        bool force;                  /* whatever the kernels are doing */
        bool saved;                  /* undo: tried to keep the present state */
        struct cop_node_row *target; /* owned */
        char sandbox_id[COP_ID_MAX];
};

static void travel_free(struct travel *t)
{
        cop_node_row_free(t->target);
        free(t->node);
        free(t);
}

static void travel_failed(struct travel *t, const struct cop_error *err)
{
        if (!t->op)
                cop_log_warning("sandbox %s does not go back: %s", t->sandbox_id, err->message);
        cop_op_done(t->op, NULL, err);
        travel_free(t);
}

static void travel_ended(struct travel *t)
{
        struct cop_error err;

        cop_error_set(&err, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended", t->sandbox_id);
        travel_failed(t, &err);
}

/* -- where to ------------------------------------------------------------------------------------------------------------------ */

/* The state before the last `steps` cells, exactly: back along the parents of the head. */
static int find_before(struct cop_sandbox *sb, unsigned steps, struct cop_node_row **ret, struct cop_error *err)
{
        _cleanup_json_ json_t *history = cop_history_of_sandbox(sb->engine, sb->row, true);
        _cleanup_(cop_node_row_freep) struct cop_node_row *at = NULL;
        const char *node = sb->row->node_id;
        uint64_t back;

        while (node[0]) {
                struct cop_node_row *row;
                int r = cop_store_node_get(sb->engine->store, node, &row, err);
                if (r < 0)
                        return r;
                cop_node_row_free(at);
                at = row;
                r = cop_history_since(sb->engine, history, at, &back, err);
                if (r < 0)
                        return r;
                if (back == steps) {
                        *ret = TAKE_PTR(at);
                        return 0;
                }
                if (back > steps)
                        return cop_error_set(
                                err, ENOENT, COP_ERR_node_not_found,
                                "the state before the last %u of sandbox %s's cells was not saved; `coppice undo %s "
                                "%llu` goes to the next one before it, `coppice log %s` shows all",
                                steps, sb->id, sb->id, (unsigned long long)back, sb->id);
                node = at->parent_id;
        }
        if (at && !cop_sandbox_by_id(sb->engine, at->sandbox_id))
                return cop_error_set(
                        err, ENOENT, COP_ERR_node_not_found,
                        "sandbox %s has no saved state that far back: those from before it was made went with "
                        "sandbox %s, which has ended; `coppice log %s` shows those it has",
                        sb->id, at->sandbox_id, sb->id);
        return cop_error_set(err, ENOENT, COP_ERR_node_not_found,
                             "sandbox %s has no saved state that far back; `coppice log %s` shows those it has", sb->id,
                             sb->id);
}

static int find_redo(struct cop_sandbox *sb, unsigned steps, struct cop_node_row **ret, struct cop_error *err)
{
        _cleanup_json_ json_t *list = sb->row->redo ? json_loads(sb->row->redo, 0, NULL) : NULL;
        size_t n = json_array_size(list);
        char cell[COP_STORE_ID_MAX];
        bool new_cell;

        cop_history_last_cell(sb, cell, &new_cell);
        if (new_cell || n < steps)
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "there is nothing to redo in sandbox %s%s",
                                     sb->id, new_cell && n > 0 ? ": a new cell was run since" : "");
        return cop_store_node_get(sb->engine->store, json_string_value(json_array_get(list, n - steps)), ret, err);
}

static int find_target(struct travel *t, struct cop_sandbox *sb, struct cop_error *err)
{
        if (t->node)
                return cop_store_node_get(t->engine->store, t->node, &t->target, err);
        return t->undo ? find_before(sb, t->undo, &t->target, err) : find_redo(sb, t->redo, &t->target, err);
}

/* What can be redone afterwards.  A goto, or an undo after new cells, begins anew. */
static void note_redo(struct travel *t, struct cop_sandbox *sb)
{
        json_t *list = sb->row->redo ? json_loads(sb->row->redo, 0, NULL) : NULL;
        _cleanup_(cop_node_row_freep) struct cop_node_row *head = NULL;
        char cell[COP_STORE_ID_MAX];
        bool new_cell;

        cop_history_last_cell(sb, cell, &new_cell);
        if (!json_is_array(list) || new_cell || t->node) {
                json_decref(list);
                list = json_array();
        }
        for (unsigned i = 0; i < t->redo; i++)
                json_array_remove(list, json_array_size(list) - 1);
        if (t->undo && sb->row->node_id[0] &&
            cop_store_node_get(t->engine->store, sb->row->node_id, &head, NULL) == 0 &&
            strcmp(head->cell_id, cell) == 0)
                json_array_append_new(list, json_string(head->id));
        while (json_array_size(list) > REDO_MAX)
                json_array_remove(list, 0);
        free(sb->row->redo);
        sb->row->redo = json_array_size(list) > 0 ? json_dumps(list, JSON_COMPACT) : NULL;
        json_decref(list);
}

/* -- going ------------------------------------------------------------------------------------------------------------------------ */

static void on_stopped(struct cop_msg *reply, const struct cop_error *stop_error, void *userdata)
{
        struct travel *t = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(t->engine, t->sandbox_id);
        struct cop_error err;

        if (!sb || sb->state != COP_SANDBOX_RESUMING) {
                travel_ended(t);
                return;
        }
        if (stop_error)
                cop_keeper_kill(sb->keeper);
        cop_sandbox_drop_keeper(sb);
        char *layers = strdup(t->target->layers);
        if (layers) {
                free(sb->row->layers);
                sb->row->layers = layers;
        }
        note_redo(t, sb);
        cop_history_begin(t->engine, sb->row, t->target);
        memcpy(sb->row->node_id, t->target->id, sizeof(sb->row->node_id));
        if (cop_node_restore_contexts(sb, t->target, true, &err) < 0)
                cop_log_warning("sandbox %s: %s", sb->id, err.message);
        if (t->op)
                cop_sandbox_when_running(t->engine, sb->id, cop_sandbox_answer_resumed, t->op);
        travel_free(t);
        cop_sandbox_resume_head(sb);
}

/* Who waits for cells (with force there may be some) or kernels is told. */
static void cancel_waiting(struct cop_sandbox *sb)
{
        struct cop_error err;

        cop_error_set(&err, ECANCELED, COP_ERR_cancelled, "sandbox %s went back to an earlier state", sb->id);
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                cop_context_answer_waiting(c, &err);
                cop_cells_abort(c, "cancelled", &err);
        }
}

static void go(struct travel *t, struct cop_sandbox *sb)
{
        struct cop_error err;
        struct cop_msg m;

        if (cop_sandbox_sleep_new(sb, &err) < 0) {
                travel_failed(t, &err);
                return;
        }
        sb->state = COP_SANDBOX_RESUMING;
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s}", "node_id", t->target->id, "why",
                                                  !t->op    ? "on_timeout"
                                                  : t->undo ? "undo"
                                                  : t->redo ? "redo"
                                                            : "goto");
        cop_engine_event(t->engine, "sandbox.goto", sb->id, detail);
        cop_commands_end(sb, "undone");
        cancel_waiting(sb);
        cop_contexts_detach(sb);
        cop_msg_init(&m, COP_WIRE_STOP, 0);
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, 0);
        cop_keeper_call(sb->keeper, &m, STOP_DEADLINE, on_stopped, t);
}

static void look_and_go(struct travel *t, struct cop_sandbox *sb);

/* userdata: a travel that waited for nodes being made. */
static void on_quiet(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        struct travel *t = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(t->engine, t->sandbox_id);

        if (!sb || sb->state >= COP_SANDBOX_ENDING)
                travel_ended(t);
        else
                look_and_go(t, sb);
}

static void begin(struct cop_sandbox *sb, const struct cop_error *running_error, void *userdata)
{
        struct travel *t = userdata;

        if (sb) {
                snprintf(t->sandbox_id, sizeof(t->sandbox_id), "%s", sb->id);
                look_and_go(t, sb);
        } else {
                travel_failed(t, running_error);
        }
}

/* Kernels on their way are not: they end with the rest. */
static const char *in_the_way(struct cop_sandbox *sb)
{
        for (const struct cop_context *c = sb->contexts; c; c = c->next)
                if (c->running || c->queue_head || c->replay)
                        return "a cell is running";
        return cop_commands_attached(sb) ? "a command is attached" : NULL;
}

static void look_and_go(struct travel *t, struct cop_sandbox *sb)
{
        const char *busy = t->force ? NULL : in_the_way(sb);
        char cell[COP_STORE_ID_MAX];
        struct cop_error err;
        bool new_cell;
        int r = 0;

        if (sb->state != COP_SANDBOX_RUNNING) { /* something else came first while it waited */
                cop_sandbox_when_running(t->engine, t->sandbox_id, begin, t);
                return;
        }
        if (busy)
                r = cop_error_set(&err, EBUSY, COP_ERR_invalid_state, "%s in sandbox %s; interrupt or await it", busy,
                                  sb->id);
        else if (sb->makings) {
                cop_node_after_makings(sb, on_quiet, t);
                return;
        }
        if (r == 0)
                r = find_target(t, sb, &err);
        if (r == 0 && strcmp(t->target->image_id, sb->row->image_id) != 0)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "node %s is of another image than sandbox %s",
                                  t->target->id, sb->id);
        if (r < 0) {
                travel_failed(t, &err);
                return;
        }
        cop_history_last_cell(sb, cell, &new_cell);
        if (t->undo && !t->saved && new_cell && !sb->checkpoint.current[0] && !cop_sandbox_busy_with_cells(sb)) {
                const struct cop_node_params p = {.reason = COP_NODE_CHECKPOINT};
                t->saved = true; /* without it there is no redo, but undo works */
                cop_node_row_free(TAKE_PTR(t->target));
                cop_node_make(sb, &p, on_quiet, t);
                return;
        }
        go(t, sb);
}

/* -- operations ------------------------------------------------------------------------------------------------------------------- */

static void travel(struct cop_engine *e, const char *ref, const char *node, unsigned undo, unsigned redo,
                   struct cop_op_to to, struct cop_op **ret_op)
{
        struct travel *t = calloc(1, sizeof(*t));

        if (ret_op)
                *ret_op = NULL;
        if (!t || !(t->op = cop_op_new(e, to, NULL, NULL))) {
                if (!t)
                        cop_answer(to, NULL, NULL);
                free(t);
                return;
        }
        t->engine = e;
        t->node = node ? strdup(node) : NULL;
        t->undo = undo;
        t->redo = redo;
        cop_op_when_running(t->op, e, ref, begin, t, ret_op);
}

void cop_sandbox_goto(struct cop_engine *e, const char *ref, const char *node, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        travel(e, ref, node, 0, 0, to, ret_op);
}

void cop_sandbox_undo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        travel(e, ref, NULL, steps, 0, to, ret_op);
}

void cop_sandbox_redo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        travel(e, ref, NULL, 0, steps, to, ret_op);
}

void cop_sandbox_restore(struct cop_sandbox *sb, const char *node)
{
        struct travel *t = calloc(1, sizeof(*t));

        if (!t || sb->state != COP_SANDBOX_RUNNING) {
                free(t);
                return;
        }
        t->engine = sb->engine;
        t->node = strdup(node);
        t->force = true;
        if (!t->node) {
                free(t);
                return;
        }
        begin(sb, NULL, t);
}
