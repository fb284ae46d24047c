/* Cells as the API shows them.  The summary (all but code and outputs) is also what the store keeps of an ended cell. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/context.h"

static json_t *end_view(const struct cop_kernel_end *end)
{
        if (WIFSIGNALED(end->status))
                return json_pack("{s:i, s:s}", "signal", WTERMSIG(end->status), "message",
                                 "the kernel was killed by a signal");
        return json_pack("{s:i, s:s}", "exit_code", WEXITSTATUS(end->status), "message", "the kernel process ended");
}

/* Whether this cell saw the memory that the cell before it left, and whether it left any for the next. */
static json_t *memory_view(struct cop_cell *cell)
{
        struct cop_context *c = cell->context;
        const char *reason = NULL;

        if (c->end.set && c->running == cell && c->end.reason)
                reason = c->end.reason;
        else if (cell->state_lost)
                reason = json_string_value(json_object_get(cell->state_lost, "reason"));
        json_t *view = json_pack("{s:b, s:I}", "kept", reason == NULL, "generation", (json_int_t)cell->row->generation);
        if (reason)
                json_object_set_new(view, "reason", json_string(reason));
        return view;
}

const char *cop_loss_key(json_t *loss)
{
        return json_object_get(loss, "mode") ? "state_replayed" : "state_lost";
}

static void add_memory_limit(struct cop_cell *cell, json_t *view)
{
        struct cop_context *c = cell->context;
        const char *name = json_string_value(json_object_get(cell->error, "name"));
        bool killed = c->running == cell && c->end.set && c->end.oom;
        bool refused = name && strcmp(name, "MemoryError") == 0;
        bool child = !killed && c->sandbox->oom_kills > cell->oom_kills_before && cell->row->started_at;

        if (!killed && !refused && !child)
                return;
        _cleanup_json_ json_t *limits = c->sandbox->row->limits ? json_loads(c->sandbox->row->limits, 0, NULL) : NULL;
        json_object_set_new(
                view, "oom",
                json_pack(
                        "{s:I, s:I, s:b, s:s}", "limit_bytes",
                        (json_int_t)json_integer_value(json_object_get(limits, "memory_bytes")), "peak_bytes",
                        (json_int_t)(killed ? c->end.peak : c->sandbox->memory_peak), "killed", killed || child,
                        "message",
                        killed ? "the kernel was killed at the sandbox's memory limit; raise it with memory or use less"
                        : refused ? "an allocation over the sandbox's memory limit was refused; the session is kept"
                                  : "a process of this cell was killed at the sandbox's memory limit; the session is "
                                    "kept"));
}

/* Of one that ended like this the caller may want to go back to before it. */
static bool is_failure(const char *status)
{
        return strcmp(status, "timeout") == 0 || strcmp(status, "died") == 0 || strcmp(status, "oom") == 0;
}

static void add_kind(const struct cop_cell_row *row, json_t *view)
{
        if (row->replay_of[0])
                json_object_set_new(view, "replay_of", json_string(row->replay_of));
        if (row->pure)
                json_object_set_new(view, "pure", json_true());
}

json_t *cop_cell_summary(struct cop_cell *cell)
{
        const struct cop_cell_row *row = cell->row;
        struct cop_context *c = cell->context;
        json_t *view = json_object(), *timeout = cop_cell_timeout_view(cell);

        json_object_set_new(view, "id", json_string(row->id));
        json_object_set_new(view, "sandbox_id", json_string(row->sandbox_id));
        json_object_set_new(view, "context_id", json_string(row->context_id));
        json_object_set_new(view, "status", json_string(row->status));
        if (row->execution_count >= 0)
                json_object_set_new(view, "execution_count", json_integer(row->execution_count));
        json_object_set_new(view, "generation", json_integer((json_int_t)row->generation));
        cop_view_time(view, "created_at", row->created_at);
        cop_view_time(view, "started_at", row->started_at);
        cop_view_time(view, "ended_at", row->ended_at);
        if (row->started_at) {
                json_object_set_new(view, "queued_ms", json_real((double)(row->started_at - row->created_at) / 1000));
                if (row->ended_at)
                        json_object_set_new(view, "duration_ms",
                                            json_real((double)(cop_now(CLOCK_MONOTONIC) - cell->begun) / 1000));
        }
        json_object_set_new(view, "timeout_seconds", json_real((double)cell->timeout / 1e6));
        if (cell->error)
                json_object_set(view, "error", cell->error);
        if (timeout && row->ended_at)
                json_object_set(view, "timeout", timeout);
        json_decref(timeout);
        if (row->ended_at && c->running == cell && c->end.set)
                json_object_set_new(view, "died", end_view(&c->end));
        if (row->ended_at)
                add_memory_limit(cell, view);
        if (cell->before[0] && is_failure(row->status))
                json_object_set_new(view, "checkpoint", json_string(cell->before));
        json_object_set_new(view, "memory", memory_view(cell));
        if (cell->state_lost)
                json_object_set(view, cop_loss_key(cell->state_lost), cell->state_lost);
        add_kind(row, view);
        if (cell->warnings)
                json_object_set(view, "warnings", cell->warnings);
        if (cell->user_expressions && json_object_size(cell->user_expressions) > 0)
                json_object_set(view, "user_expressions", cell->user_expressions);
        json_t *truncated = cell->outputs ? cop_outputs_truncated(cell->outputs) : NULL;
        if (truncated)
                json_object_set_new(view, "truncated", truncated);
        if (cell->record)
                json_object_set_new(view, "log",
                                    json_pack("{s:I, s:b}", "bytes", (json_int_t)cop_record_bytes(cell->record),
                                              "complete", cop_record_complete(cell->record)));
        return view;
}

json_t *cop_cell_view(struct cop_cell *cell)
{
        json_t *view = cop_cell_summary(cell);

        json_object_set_new(view, "code", json_stringn_nocheck(cell->row->code, cell->row->code_len));
        cop_outputs_spread(view, cell->outputs ? cop_outputs_items(cell->outputs) : json_array());
        return view;
}

json_t *cop_cell_row_view(const struct cop_cell_row *row, bool outputs)
{
        json_t *view = row->summary ? json_loads(row->summary, 0, NULL) : NULL;

        if (!json_is_object(view)) {
                json_decref(view);
                view = json_pack("{s:s, s:s, s:s, s:s, s:I}", "id", row->id, "sandbox_id", row->sandbox_id,
                                 "context_id", row->context_id, "status", row->status, "generation",
                                 (json_int_t)row->generation);
                add_kind(row, view);
                cop_view_time(view, "created_at", row->created_at);
                cop_view_time(view, "started_at", row->started_at);
                cop_view_time(view, "ended_at", row->ended_at);
        }
        if (row->code)
                json_object_set_new(view, "code", json_stringn_nocheck(row->code, row->code_len));
        if (outputs) {
                json_t *items = row->outputs ? json_loads(row->outputs, JSON_ALLOW_NUL, NULL) : NULL;
                cop_outputs_spread(view, json_is_array(items) ? items : json_array());
        }
        return view;
}

bool cop_cell_was_taken(const struct cop_cell_row *row)
{
        _cleanup_json_ json_t *options = row->options ? json_loads(row->options, 0, NULL) : NULL;

        return json_is_true(json_object_get(options, "taken"));
}
