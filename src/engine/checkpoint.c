/* Theory of operation: checkpoints
 *
 * after_cell   when a cell has ended, its reply was sent and no other runs, a node is made.  Cells that come before the keeper has
 *              taken the state wait for that (sb->held, node.c); writing it to disk goes on while they run.  A cell that was waiting
 *              already has it made before it starts: cells that come one after another do not share one.
 * before_cell  the same just before a cell, if something ran since the last node.
 *
 * A checkpoint that is wanted while cells of other contexts are running is made after them: they share one, and undo, which goes
 * back a number of cells exactly, says so (travel.c).
 * Failures never reach the session: they are events, and each in a row doubles the time until the next try.
 *
 * `current` names the node that is the present state, so that a cell that dies can name what was before it.
 */
#include "engine/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN (2 * USEC_PER_SEC)
#define RETRY_MAX (600 * USEC_PER_SEC)
#define RETRY_REFUSED (60 * USEC_PER_SEC) /* not_freezable: what is in the way rarely goes by itself */
#define KEEP_EVERY 10

static bool may_make(struct cop_sandbox *sb)
{
        const struct cop_checkpointing *cp = &sb->checkpoint;

        return sb->state == COP_SANDBOX_RUNNING && cp->wanted && !sb->makings &&
               cop_now(CLOCK_MONOTONIC) >= cp->retry_at;
}

static void back_off(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_checkpointing *cp = &sb->checkpoint;
        usec_t wait = err->code == COP_ERR_not_freezable ? RETRY_REFUSED : RETRY_MIN << MIN_OF(cp->failures, 8u);

        cp->failures++;
        cp->retry_at = cop_usec_add(cop_now(CLOCK_MONOTONIC), MIN_OF(wait, RETRY_MAX));
        cop_log_debug("checkpoint of %s: %s", sb->id, err->message);
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:s, s:f}", "code", cop_err_code_name(err->code), "message", err->message,
                          "retry_seconds", (double)MIN_OF(wait, RETRY_MAX) / USEC_PER_SEC);
        cop_engine_event(sb->engine, "checkpoint.failed", sb->id, detail);
}

static void wake(struct cop_sandbox *sb);

struct attempt {
        struct cop_engine *engine;
        char sandbox_id[COP_ID_MAX];
};

static void on_made(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        struct attempt *a = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(a->engine, a->sandbox_id);

        free(a);
        if (!sb || sb->state >= COP_SANDBOX_ENDING)
                return;
        if (err) {
                back_off(sb, err);
                return;
        }
        sb->checkpoint.failures = 0;
        cop_checkpoint_thin(sb);
        if (sb->checkpoint.wanted &&
            sb->policy.checkpoints == COP_CHECKPOINTS_AFTER_CELL) /* a cell has ended meanwhile */
                wake(sb);
}

static void make(struct cop_sandbox *sb)
{
        const struct cop_node_params p = {.reason = COP_NODE_CHECKPOINT};
        struct attempt *a = calloc(1, sizeof(*a));

        if (!a)
                return;
        a->engine = sb->engine;
        snprintf(a->sandbox_id, sizeof(a->sandbox_id), "%s", sb->id);
        sb->checkpoint.wanted = false;
        cop_node_make(sb, &p, on_made, a);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        char node[COP_ID_MAX];

        if (sb->checkpoint.answer_first) { /* the cell's answer is written at the end of this turn */
                sb->checkpoint.answer_first = false;
                cop_source_set_time(s, 0);
                return;
        }
        if (sb->checkpoint.restore[0]) {
                memcpy(node, sb->checkpoint.restore, sizeof(node));
                sb->checkpoint.restore[0] = '\0';
                cop_sandbox_restore(sb, node);
                return;
        }
        if (may_make(sb) && !cop_sandbox_busy_with_cells(sb))
                make(sb);
}

static void wake(struct cop_sandbox *sb)
{
        if (!sb->checkpoint.timer &&
            cop_loop_add_timer(sb->engine->loop, 0, on_timer, sb, &sb->checkpoint.timer, NULL) < 0)
                return;
        sb->checkpoint.answer_first = true;
        cop_source_set_time(sb->checkpoint.timer, 0);
}

void cop_checkpoint_cell_begins(struct cop_sandbox *sb, char before[static COP_ID_MAX])
{
        memcpy(before, sb->checkpoint.current, COP_ID_MAX);
        sb->checkpoint.current[0] = '\0';
        sb->checkpoint.wanted = sb->policy.checkpoints != COP_CHECKPOINTS_OFF;
}

void cop_checkpoint_cell_ended(struct cop_sandbox *sb, const char *before, bool failed)
{
        if (failed && before[0] && sb->policy.restore_on_timeout) {
                snprintf(sb->checkpoint.restore, sizeof(sb->checkpoint.restore), "%s", before);
                wake(sb);
        } else if (sb->policy.checkpoints == COP_CHECKPOINTS_AFTER_CELL && sb->checkpoint.wanted) {
                wake(sb);
        }
}

bool cop_checkpoint_first(struct cop_sandbox *sb)
{
        if (sb->held)
                return true;
        if (sb->policy.checkpoints == COP_CHECKPOINTS_OFF || sb->checkpoint.current[0] ||
            cop_sandbox_busy_with_running(sb))
                return false;
        if (sb->policy.checkpoints == COP_CHECKPOINTS_BEFORE_CELL)
                sb->checkpoint.wanted = true;
        if (!sb->checkpoint.wanted)
                return false;
        if (sb->makings && sb->state == COP_SANDBOX_RUNNING) { /* the one before is still being written */
                sb->held = sb->policy.checkpoints == COP_CHECKPOINTS_BEFORE_CELL || cop_node_soon_made(sb);
                return sb->held;
        }
        if (!may_make(sb))
                return false;
        make(sb);
        return sb->held;
}

void cop_checkpoint_is_at(struct cop_sandbox *sb, const char *node)
{
        snprintf(sb->checkpoint.current, sizeof(sb->checkpoint.current), "%s", node);
        sb->checkpoint.wanted = false;
}

void cop_checkpoint_is_not_at(struct cop_sandbox *sb, const char *node)
{
        if (strcmp(sb->checkpoint.current, node) == 0)
                sb->checkpoint.current[0] = '\0';
}

void cop_checkpoint_drop(struct cop_sandbox *sb)
{
        sb->checkpoint.timer = cop_source_free(sb->checkpoint.timer);
}

/* -- thinning -------------------------------------------------------------------------------------------------------------- */

int64_t cop_checkpoint_next_ordinal(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *head = NULL;

        if (!sb->row->node_id[0] || cop_store_node_get(sb->engine->store, sb->row->node_id, &head, NULL) < 0)
                return 1;
        return head->ordinal + 1;
}

/* All of the newest `keep`, then every tenth; and the oldest go until the rest fits. */
void cop_checkpoint_thin(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        struct cop_node_filter f = {.sandbox_id = sb->id, .reason = "checkpoint", .brief = true};
        size_t count = 0;
        uint64_t bytes = 0;

        if (cop_store_node_list(sb->engine->store, &f, &rows, NULL) < 0)
                return;
        while (rows[count])
                bytes += rows[count]->memory_bytes + rows[count]->file_bytes, count++;
        for (size_t i = 0; i < count; i++) {
                bool old = count - i > sb->policy.checkpoint_keep && rows[i]->ordinal % KEEP_EVERY != 0;
                if (!old && bytes <= sb->policy.checkpoint_bytes)
                        continue;
                if (rows[i]->name || strcmp(rows[i]->id, sb->row->node_id) == 0)
                        continue;
                bytes -= rows[i]->memory_bytes + rows[i]->file_bytes;
                cop_node_release(sb->engine, rows[i]->id);
        }
}
