/* Theory of operation: export
 *
 * A notebook is made while it is read, a cell at a time, so that a session of thousands of cells costs neither memory nor the loop:
 *
 *      COLLECT  once through the cells for displays that later cells changed; in slices, from the loop
 *      HEAD, CELLS, TAIL  what read() hands out; the metadata comes last, behind the cells, where JSON does not care
 *
 * Which cells: those that led to the present state (history.c), also of the sandboxes that this one was forked from.  What has begun
 * by the time of the call is in, what comes later is not.  Nothing is woken: only the store is read.
 */
#include "engine/nbformat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/node.h"

#define SLICE (2 * USEC_PER_MSEC) /* of work in one turn of the loop */

struct range {
        char sandbox_id[COP_ID_MAX];
        int64_t after, upto;
        bool undone;
};

enum phase {
        PHASE_COLLECT,
        PHASE_HEAD,
        PHASE_CELLS,
        PHASE_TAIL,
        PHASE_END,
};

struct cop_notebook {
        struct cop_engine *engine; /* borrowed */
        char context_id[COP_ID_MAX];
        struct range *ranges; /* owned */
        size_t count, at;     /* at: the range that is being read */
        int64_t after;        /* cells of it that were read */
        json_t *metadata;     /* owned */
        struct cop_nbformat_displays displays;
        enum phase phase;
        int failed;                   /* 0, or the negative errno that ends it */
        bool any;                     /* a cell stands before the next one */
        char *text;                   /* owned: what is being handed out */
        size_t len, taken;            /* of text */
        struct cop_source *collector; /* owned */
        void (*more)(void *userdata);
        void *userdata; /* borrowed */
};

struct cop_notebook *cop_notebook_close(struct cop_notebook *n)
{
        if (!n)
                return NULL;
        cop_source_free(n->collector);
        cop_nbformat_displays_done(&n->displays);
        json_decref(n->metadata);
        free(n->ranges);
        free(n->text);
        free(n);
        return NULL;
}

/* -- which cells -------------------------------------------------------------------------------------------------------- */

static void add_range(struct cop_notebook *n, const char *sandbox_id, int64_t after, int64_t upto, bool undone)
{
        struct range *r = &n->ranges[n->count];

        if (upto <= after)
                return;
        *r = (struct range){.after = after, .upto = upto, .undone = undone};
        snprintf(r->sandbox_id, sizeof(r->sandbox_id), "%s", sandbox_id);
        n->count++;
}

static int by_number(const void *a, const void *b)
{
        const struct range *x = a, *y = b;

        return x->after < y->after ? -1 : x->after > y->after;
}

/* The gaps between its own ranges: what was undone. */
static void add_undone(struct cop_notebook *n, const char *sandbox_id, int64_t newest)
{
        size_t known = n->count;
        int64_t after = 0;

        for (size_t i = 0; i < known; i++)
                if (strcmp(n->ranges[i].sandbox_id, sandbox_id) == 0) {
                        add_range(n, sandbox_id, after, n->ranges[i].after, true);
                        after = n->ranges[i].upto;
                }
        add_range(n, sandbox_id, after, newest, true);
        qsort(n->ranges, n->count, sizeof(*n->ranges), by_number);
}

static int plan(struct cop_notebook *n, const struct cop_sandbox_row *row, bool undone, struct cop_error *err)
{
        _cleanup_json_ json_t *history = cop_history_of_sandbox(n->engine, row, false);
        int64_t newest = 0;

        n->ranges = calloc(2 * json_array_size(history) + 1, sizeof(*n->ranges));
        if (!n->ranges)
                return cop_error_errno(err, ENOMEM, "notebook");
        for (size_t i = 0; i < json_array_size(history); i++) {
                const struct cop_cell_range range = cop_history_range(history, i);
                add_range(n, range.sandbox_id, range.after, range.upto, false);
        }
        json_t *gone = cop_history_missing(n->engine, history); /* of a sandbox that was removed: whose they were */
        if (json_array_size(gone) > 0)
                json_object_set(json_object_get(n->metadata, "coppice"), "missing_cells_of", gone);
        json_decref(gone);
        int r = cop_store_cell_newest(n->engine->store, row->id, false, &newest, err);
        if (r == 0 && undone)
                add_undone(n, row->id, newest);
        if (n->count > 0)
                n->after = n->ranges[0].after;
        return r;
}

/* 1 and the next cell of the context, 0 at the end. */
static int next_cell(struct cop_notebook *n, bool code, struct cop_cell_row ***ret, struct cop_error *err)
{
        for (; n->at < n->count; n->at++, n->after = n->at < n->count ? n->ranges[n->at].after : 0) {
                const struct range *r = &n->ranges[n->at];
                const struct cop_cell_filter f = {.sandbox_id = r->sandbox_id,
                                                  .context_id = n->context_id,
                                                  .after_seq = n->after,
                                                  .before_seq = r->upto + 1,
                                                  .limit = 1,
                                                  .oldest_first = true,
                                                  .originals = true, /* replays stand beside what they repeat */
                                                  .code = code,
                                                  .outputs = true};
                int k = cop_store_cell_list(n->engine->store, &f, ret, err);
                if (k < 0)
                        return k;
                if ((*ret)[0]) {
                        n->after = (*ret)[0]->seq;
                        return 1;
                }
                *ret = cop_cell_rows_free(*ret);
        }
        return 0;
}

static void rewind_cells(struct cop_notebook *n)
{
        n->at = 0;
        n->after = n->count > 0 ? n->ranges[0].after : 0;
}

/* -- COLLECT ------------------------------------------------------------------------------------------------------------ */

/* 1 while there are more. */
static int collect_one(struct cop_notebook *n)
{
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_error err;

        int r = next_cell(n, false, &rows, &err);
        if (r <= 0)
                return r;
        if (rows[0]->outputs && strstr(rows[0]->outputs, "\"display_id\"")) {
                _cleanup_json_ json_t *items = json_loads(rows[0]->outputs, JSON_ALLOW_NUL, NULL);
                cop_nbformat_displays_note(&n->displays, items, rows[0]->seq);
        }
        return 1;
}

static void on_collect(struct cop_source *s, void *userdata)
{
        struct cop_notebook *n = userdata;
        usec_t end = cop_usec_add(cop_now(CLOCK_MONOTONIC), SLICE);
        int r = 1;

        while (r > 0 && cop_now(CLOCK_MONOTONIC) < end)
                r = collect_one(n);
        if (r > 0)
                return;
        cop_source_set_enabled(s, false);
        n->failed = r;
        n->phase = PHASE_HEAD;
        rewind_cells(n);
        n->more(n->userdata);
}

/* -- a cell ------------------------------------------------------------------------------------------------------------- */

static void copy_field(json_t *to, json_t *from, const char *key)
{
        json_t *value = json_object_get(from, key);

        if (value)
                json_object_set(to, key, value);
}

static json_t *cell_metadata(struct cop_notebook *n, const struct cop_cell_row *row, json_t *view)
{
        static const char *const fields[] = {"status",      "generation", "started_at", "ended_at",
                                             "duration_ms", "truncated",  "state_lost", "timeout"};
        json_t *m = json_pack("{s:s, s:s}", "cell_id", row->id, "sandbox_id", row->sandbox_id);
        char node[COP_STORE_ID_MAX] = "";

        for (size_t i = 0; i < ELEMENTSOF(fields); i++)
                copy_field(m, view, fields[i]);
        json_object_set_new(m, "status", json_string(row->status)); /* lost: the summary may not know */
        cop_store_node_after_cell(n->engine->store, row->sandbox_id, row->id, node, NULL);
        if (node[0])
                json_object_set_new(m, "node_id", json_string(node));
        if (n->ranges[n->at].undone)
                json_object_set_new(m, "undone", json_true());
        return json_pack("{s:o}", "coppice", m);
}

static json_t *cell_object(struct cop_notebook *n, const struct cop_cell_row *row)
{
        _cleanup_json_ json_t *view = cop_cell_row_view(row, false);
        _cleanup_json_ json_t *items = row->outputs ? json_loads(row->outputs, JSON_ALLOW_NUL, NULL) : NULL;
        json_t *outputs = cop_nbformat_outputs(&n->displays, items, row->seq, json_object_get(view, "error"),
                                               row->execution_count);

        /* The program of a take does nothing without the state that it was taken from: its title alone. */
        size_t code_len = cop_cell_was_taken(row) ? strcspn(row->code, "\n") : row->code_len;

        return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "id", row->id, "cell_type", "code", "execution_count",
                         row->execution_count > 0 ? json_integer(row->execution_count) : json_null(), "metadata",
                         cell_metadata(n, row, view), "outputs", outputs, "source",
                         json_stringn_nocheck(row->code, code_len));
}

/* -- handing out -------------------------------------------------------------------------------------------------------- */

static int hand_out(struct cop_notebook *n, char *text)
{
        free(n->text);
        n->text = text;
        n->len = text ? strlen(text) : 0;
        n->taken = 0;
        return text ? 0 : -ENOMEM;
}

static int hand_out_cell(struct cop_notebook *n)
{
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_error err;

        int r = next_cell(n, true, &rows, &err);
        if (r < 0)
                return r;
        if (r == 0) {
                n->phase = PHASE_TAIL;
                return 0;
        }
        _cleanup_json_ json_t *cell = cell_object(n, rows[0]);
        _cleanup_free_ char *dump = cell ? json_dumps(cell, JSON_COMPACT) : NULL;
        char *text = NULL;
        if (dump && asprintf(&text, "%s%s", n->any ? ",\n" : "", dump) < 0)
                text = NULL;
        n->any = true;
        return hand_out(n, text);
}

static int hand_out_tail(struct cop_notebook *n)
{
        _cleanup_free_ char *dump = json_dumps(n->metadata, JSON_COMPACT);
        char *text = NULL;

        if (dump && asprintf(&text, "\n],\n\"metadata\":%s,\n\"nbformat\":4,\"nbformat_minor\":5}\n", dump) < 0)
                text = NULL;
        n->phase = PHASE_END;
        return hand_out(n, text);
}

static int next_text(struct cop_notebook *n)
{
        switch (n->phase) {
        case PHASE_HEAD:
                n->phase = PHASE_CELLS;
                return hand_out(n, strdup("{\"cells\":[\n"));
        case PHASE_CELLS:
                return hand_out_cell(n);
        case PHASE_TAIL:
                return hand_out_tail(n);
        case PHASE_COLLECT:
        case PHASE_END:
                break;
        }
        return 0;
}

ssize_t cop_notebook_read(struct cop_notebook *n, char *buf, size_t size)
{
        usec_t end = cop_usec_add(cop_now(CLOCK_MONOTONIC), SLICE);
        size_t len = 0;

        if (n->phase == PHASE_COLLECT)
                return -EAGAIN;
        while (n->failed == 0 && len < size && (len == 0 || cop_now(CLOCK_MONOTONIC) < end)) {
                size_t part = MIN_OF(size - len, n->len - n->taken);
                if (part > 0) {
                        memcpy(buf + len, n->text + n->taken, part);
                        n->taken += part;
                        len += part;
                } else if (n->phase == PHASE_END) {
                        break;
                } else {
                        n->failed = next_text(n);
                }
        }
        return n->failed < 0 ? n->failed : (ssize_t)len;
}

/* -- opening ------------------------------------------------------------------------------------------------------------ */

static const struct cop_context_row *pick_context(struct cop_context_row **rows, const char *ref)
{
        for (struct cop_context_row **row = rows; *row; row++)
                if (strcmp((*row)->id, ref) == 0 || ((*row)->name && strcmp((*row)->name, ref) == 0))
                        return *row;
        return NULL;
}

/* One that was removed is known by its cells only. */
static int check_context(struct cop_engine *e, const struct cop_sandbox_row *sandbox, const char *ref,
                         struct cop_error *err)
{
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **cells = NULL;
        const struct cop_cell_filter f = {.sandbox_id = sandbox->id, .context_id = ref, .limit = 1};

        int r = cop_store_cell_list(e->store, &f, &cells, err);
        if (r == 0 && !cells[0] && strcmp(ref, "default") != 0)
                return cop_error_set(err, ENOENT, COP_ERR_context_not_found, "no context \"%.80s\" in sandbox %s", ref,
                                     sandbox->id);
        return r;
}

static json_t *language_info(const char *language)
{
        if (strcmp(language, "python") == 0)
                return json_pack("{s:s, s:s, s:s, s:s}", "name", "python", "file_extension", ".py", "mimetype",
                                 "text/x-python", "pygments_lexer", "ipython3");
        return json_pack("{s:s}", "name", language);
}

static json_t *notebook_metadata(struct cop_engine *e, const struct cop_sandbox_row *row,
                                 const struct cop_context_row *context, const char *context_id)
{
        const char *kernel = context && context->kernelspec ? context->kernelspec : "python3", *display = kernel;
        const char *language = context && context->language ? context->language : "python";
        _cleanup_json_ json_t *specs = NULL;
        char stamp[COP_RFC3339_MAX];
        json_t *spec;
        size_t i;

        cop_image_lookup(e, row->image_id, NULL, &specs, NULL, NULL); /* the image may be gone */
        json_array_foreach (specs, i, spec) {
                const char *name = json_string_value(json_object_get(spec, "name")),
                           *text = json_string_value(json_object_get(spec, "display_name"));
                if (name && text && strcmp(name, kernel) == 0)
                        display = text;
        }
        return json_pack("{s:{s:s, s:s, s:s}, s:o, s:{s:s, s:s*, s:s, s:s, s:s}}", "kernelspec", "name", kernel,
                         "display_name", display, "language", language, "language_info", language_info(language),
                         "coppice", "sandbox_id", row->id, "name", row->name, "context_id", context_id, "image",
                         row->image_name ? row->image_name : row->image_id, "exported_at",
                         cop_rfc3339(cop_now(CLOCK_REALTIME), stamp));
}

static int find_sandbox(struct cop_engine *e, const char *ref, struct cop_sandbox_row **ret, struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        int64_t newest = 0;

        int r = cop_store_sandbox_get(e->store, ref, &row, err);
        if (r == 0 && strcmp(row->state, "ended") == 0)
                r = cop_store_cell_newest(e->store, row->id, false, &newest, err);
        if (r < 0)
                return r;
        const char *reason = row->ended_reason ? row->ended_reason : "";
        if (strcmp(row->state, "ended") == 0 && (newest == 0 || strcmp(reason, "removed") == 0))
                return cop_error_set(err, ESHUTDOWN, COP_ERR_sandbox_ended,
                                     "sandbox \"%.80s\" has ended (%s), and no cells of it are kept", ref, reason);
        *ret = TAKE_PTR(row);
        return 0;
}

static int prepare(struct cop_notebook *n, const struct cop_sandbox_row *sandbox, const char *context, bool undone,
                   struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;

        int r = cop_store_context_list(n->engine->store, sandbox->id, &rows, err);
        if (r < 0)
                return r;
        const struct cop_context_row *row = pick_context(rows, context);
        if (!row && (r = check_context(n->engine, sandbox, context, err)) < 0)
                return r;
        snprintf(n->context_id, sizeof(n->context_id), "%s", row ? row->id : context);
        n->metadata = notebook_metadata(n->engine, sandbox, row, n->context_id);
        if (!n->metadata || cop_nbformat_displays_init(&n->displays) < 0)
                return cop_error_errno(err, ENOMEM, "notebook");
        return plan(n, sandbox, undone, err);
}

int cop_notebook_open(struct cop_engine *e, const char *ref, const char *context, bool undone,
                      void (*more)(void *userdata), void *userdata, struct cop_notebook **ret, struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;

        int r = find_sandbox(e, ref, &sandbox, err);
        if (r < 0)
                return r;
        struct cop_notebook *n = calloc(1, sizeof(*n));
        if (!n)
                return cop_error_errno(err, ENOMEM, "notebook");
        *n = (struct cop_notebook){.engine = e, .more = more, .userdata = userdata};
        r = prepare(n, sandbox, context ? context : "default", undone, err);
        if (r == 0)
                r = cop_loop_add_defer(e->loop, on_collect, n, &n->collector, err);
        if (r < 0) {
                cop_notebook_close(n);
                return r;
        }
        cop_source_set_enabled(n->collector, true);
        *ret = n;
        return 0;
}
