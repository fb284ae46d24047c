/* Theory of operation: replay
 *
 * When a sandbox was resumed without its memory, the cells that had made it are run again, if the caller of the resume or its policy
 * asks for it.  Which these are stands in its history (history.c): of the cells that led to the state, those that ran in the generation of
 * the context that was lost.  So undone cells are not among them, and those of a fork's source are.
 *
 * Each context has its list and goes through it before anything that was asked for meanwhile: cop_context_run_next takes from here
 * first.  Contexts do so side by side.  A replay is a cell of its own, with a record, that names what it repeats (replay_of); undo does
 * not count it.  One that fails is reported and the next one runs; when the kernel ends, the memory made so far is gone, and with it
 * the reason to go on.
 *
 * In the end the next cell tells state_replayed with the counts instead of state_lost.  Whoever asked for the resume is answered then.
 * A daemon that dies in between leaves state_lost as it was.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#define REPLAY_MAX 10000 /* cells of one context */

struct waiter {
        struct waiter *next;
        struct cop_op *op;
};

struct counts {
        unsigned ok, failed, different, skipped;
};

struct cop_replay {
        enum cop_replay_mode mode;
        struct waiter *waiters; /* owned list */
        json_t *cells;          /* owned array: what the report says of each */
        struct counts counts;
        unsigned contexts; /* that are at it */
        unsigned total;
        bool complete; /* all that should be run again is still recorded */
};

struct cop_context_replay {
        struct cop_cell_row **rows; /* owned: what to run again, without the code */
        size_t count, at;
        struct counts counts;
};

static const char *const modes[] = {"none", "all", "pure"};

/* -- the objects --------------------------------------------------------------------------------------------------- */

static void context_replay_free(struct cop_context *c)
{
        struct cop_context_replay *r = TAKE_PTR(c->replay);

        if (!r)
                return;
        cop_cell_rows_free(r->rows);
        free(r);
}

static void replay_free(struct cop_replay *r)
{
        while (r->waiters) {
                struct waiter *w = r->waiters;
                r->waiters = w->next;
                free(w);
        }
        json_decref(r->cells);
        free(r);
}

void cop_replay_drop(struct cop_sandbox *sb)
{
        if (sb->replay)
                replay_free(TAKE_PTR(sb->replay));
}

void cop_replay_abort(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_replay *r = TAKE_PTR(sb->replay);

        if (!r)
                return;
        while (r->waiters) {
                struct waiter *w = r->waiters;
                r->waiters = w->next;
                cop_op_done(w->op, NULL, err);
                free(w);
        }
        replay_free(r);
}

bool cop_replay_wait(struct cop_sandbox *sb, struct cop_op *op)
{
        struct waiter *w = sb->replay ? calloc(1, sizeof(*w)) : NULL;

        if (!w)
                return false;
        w->op = op;
        w->next = sb->replay->waiters;
        sb->replay->waiters = w;
        return true;
}

static json_t *counts_view(const struct counts *n, enum cop_replay_mode mode)
{
        return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "mode", modes[mode], "cells", (int)(n->ok + n->failed), "ok",
                         (int)n->ok, "failed", (int)n->failed, "different", (int)n->different, "skipped",
                         (int)n->skipped);
}

/* -- reporting ----------------------------------------------------------------------------------------------------- */

/* Takes entry into the report, and tells those who wait. */
static void report(struct cop_context *c, json_t *entry /* stolen */)
{
        struct cop_replay *r = c->sandbox->replay;
        char message[80];

        if (!r || !entry) {
                json_decref(entry);
                return;
        }
        json_array_append_new(r->cells, entry);
        snprintf(message, sizeof(message), "cell %zu of %u", json_array_size(r->cells), r->total);
        _cleanup_json_ json_t *event =
                json_pack("{s:s, s:s, s:O}", "stage", "replay", "message", message, "replayed", entry);
        for (struct waiter *w = r->waiters; event && w; w = w->next)
                cop_op_progress(w->op, event);
}

static void skip(struct cop_context *c, const struct cop_cell_row *row, const char *why)
{
        c->replay->counts.skipped++;
        if (c->sandbox->replay)
                c->sandbox->replay->counts.skipped++;
        report(c, json_pack("{s:s, s:s, s:s, s:s}", "cell_id", row->id, "context_id", c->row->id, "status", "skipped",
                            "why", why));
}

/* What the code said: times, and how the streams were cut into pieces, differ every time. */
static json_t *essence(const struct cop_cell_row *row)
{
        _cleanup_json_ json_t *view = cop_cell_row_view(row, true);
        json_t *error = json_object_get(view, "error"), *result, *results = json_array();
        size_t i;

        json_array_foreach (json_object_get(view, "results"), i, result)
                json_array_append(results, json_object_get(result, "data"));
        return json_pack("{s:s, s:O?, s:O?, s:O?, s:O?, s:o}", "status", row->status, "stdout",
                         json_object_get(view, "stdout"), "stderr", json_object_get(view, "stderr"), "name",
                         json_object_get(error, "name"), "value", json_object_get(error, "value"), "results", results);
}

void cop_replay_cell_ended(struct cop_cell *cell)
{
        struct cop_context *c = cell->context;
        const struct cop_cell_row *row = cell->row;
        struct cop_context_replay *r = c->replay;

        if (!r || r->at == 0)
                return; /* of a former daemon's replay */
        const struct cop_cell_row *of = r->rows[r->at - 1];
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *original = NULL;
        bool ok = strcmp(row->status, "ok") == 0, same = false;
        if (cop_store_cell_get(c->sandbox->engine->store, of->sandbox_id, of->id, &original, NULL) == 0) {
                _cleanup_json_ json_t *was = essence(original), *is = essence(row);
                same = was && is && json_equal(was, is);
        }
        struct counts *all[] = {&r->counts, c->sandbox->replay ? &c->sandbox->replay->counts : NULL};
        for (size_t i = 0; i < ELEMENTSOF(all) && all[i]; i++) {
                all[i]->ok += ok;
                all[i]->failed += !ok;
                all[i]->different += !same;
        }
        report(c, json_pack("{s:s, s:s, s:s, s:s, s:f, s:b}", "cell_id", of->id, "context_id", c->row->id,
                            "replayed_as", row->id, "status", row->status, "duration_ms",
                            (double)(row->ended_at - MIN_OF(row->started_at, row->ended_at)) / USEC_PER_MSEC,
                            "same_outcome", same));
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static void finish(struct cop_sandbox *sb)
{
        struct cop_replay *r = TAKE_PTR(sb->replay);
        _cleanup_json_ json_t *counts = counts_view(&r->counts, r->mode);

        cop_engine_event(sb->engine, "sandbox.replayed", sb->id, counts);
        json_object_set_new(counts, "complete", json_boolean(r->complete));
        json_object_set(counts, "report", r->cells);
        json_decref(sb->replay_report);
        sb->replay_report = TAKE_PTR(counts);
        while (r->waiters) {
                struct waiter *w = r->waiters;
                r->waiters = w->next;
                cop_op_done(w->op, cop_sandbox_resumed_view(sb), NULL);
                free(w);
        }
        replay_free(r);
}

static void context_done(struct cop_context *c)
{
        struct cop_sandbox *sb = c->sandbox;

        context_replay_free(c);
        if (sb->replay && --sb->replay->contexts == 0 && !sb->engine->closing)
                finish(sb);
}

/* The next cell tells what it finds instead of what is gone. */
static void tell_replayed(struct cop_context *c)
{
        const struct counts *n = &c->replay->counts;
        unsigned ran = n->ok + n->failed;
        char message[200];

        if (ran == 0 || !c->state_lost || !c->sandbox->replay)
                return;
        snprintf(message, sizeof(message),
                 "the sandbox was started again from its files; %u cell%s run again, %u of them failed, %u %s not", ran,
                 ran == 1 ? " was" : "s were", n->failed, n->skipped, n->skipped == 1 ? "was" : "were");
        _cleanup_json_ json_t *counts = counts_view(n, c->sandbox->replay->mode);
        json_object_set_new(c->state_lost, "message", json_string(message));
        json_object_set_new(c->state_lost, "complete", json_boolean(c->sandbox->replay->complete));
        json_object_update(c->state_lost, counts);
        free(c->row->state_lost);
        c->row->state_lost = json_dumps(c->state_lost, JSON_COMPACT);
        cop_context_save(c);
}

void cop_replay_stop(struct cop_context *c)
{
        if (!c->replay)
                return;
        while (c->replay->at < c->replay->count)
                skip(c, c->replay->rows[c->replay->at++], "the kernel ended before its turn");
        context_done(c);
}

/* -- going --------------------------------------------------------------------------------------------------------- */

static const char *reason_to_skip(const struct cop_replay *r, const struct cop_cell_row *row)
{
        if (r->mode == COP_REPLAY_PURE && !row->pure)
                return "it was not run as pure";
        if (strcmp(row->status, "ok") != 0 && strcmp(row->status, "error") != 0)
                return "it did not come to its end";
        if (cop_cell_was_taken(row))
                return "taken: cannot be replayed";
        return NULL;
}

struct cop_cell *cop_replay_next(struct cop_context *c)
{
        struct cop_context_replay *r = c->replay;
        struct cop_error err;

        while (c->sandbox->replay && r->at < r->count) {
                const struct cop_cell_row *row = r->rows[r->at++];
                _cleanup_(cop_cell_row_freep) struct cop_cell_row *full = NULL;
                const char *why = reason_to_skip(c->sandbox->replay, row);
                struct cop_cell *cell;
                if (!why && cop_store_cell_get(c->sandbox->engine->store, row->sandbox_id, row->id, &full, &err) < 0)
                        why = err.message;
                if (!why && cop_cell_repeat(c, full, &cell, &err) == 0)
                        return cell;
                skip(c, row, why ? why : err.message);
        }
        tell_replayed(c);
        context_done(c);
        return NULL;
}

/* The list of one context; false when there is nothing to run again. */
static bool collect(struct cop_context *c, json_t *history, bool *ret_complete)
{
        struct cop_cell_range of = {.context_id = c->row->id, .limit = REPLAY_MAX};
        struct cop_cell_row **rows = NULL;
        struct cop_error err;
        size_t n = 0;

        *ret_complete = true;
        of.generation = (uint64_t)json_integer_value(json_object_get(c->state_lost, "generation"));
        if (of.generation == 0 || c->replay)
                return false;
        if (cop_history_cells(c->sandbox->engine, history, &of, &rows, &err) < 0) {
                cop_log_warning("context %s/%s is not replayed: %s", c->sandbox->id, c->row->id, err.message);
                *ret_complete = false;
                return false;
        }
        while (rows[n])
                n++;
        *ret_complete = n < REPLAY_MAX;
        if (n > 0 && strcmp(c->row->state, "dead") == 0) /* its kernel does not start */
                *ret_complete = false;
        else if (n > 0)
                c->replay = calloc(1, sizeof(*c->replay));
        if (!c->replay) {
                cop_cell_rows_free(rows);
                return false;
        }
        c->replay->rows = rows;
        c->replay->count = n;
        return true;
}

void cop_replay_begin(struct cop_sandbox *sb)
{
        enum cop_replay_mode mode = sb->replay_asked ? sb->replay_asked - 1 : sb->policy.replay;
        struct cop_replay *r = mode == COP_REPLAY_NONE ? NULL : calloc(1, sizeof(*r));
        _cleanup_json_ json_t *history = NULL, *missing = NULL;

        sb->replay_asked = 0;
        sb->replay_due = false;
        if (!r)
                return;
        history = cop_history_of_sandbox(sb->engine, sb->row, true);
        missing = cop_history_missing(sb->engine, history);
        r->mode = mode;
        r->complete = json_array_size(missing) == 0;
        r->cells = json_array();
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                bool complete;
                if (collect(c, history, &complete)) {
                        r->contexts++;
                        r->total += (unsigned)c->replay->count;
                }
                r->complete = r->complete && complete;
        }
        sb->replay = r;
        if (r->contexts == 0)
                finish(sb);
}
