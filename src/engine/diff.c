/* Theory of operation
 *
 *      node of a ─┬─ variables of a: copy, cell, end of the copy
 *                 ├─ files: one child that reads the layers of both (compare.c)
 *      node of b ─┴─ variables of b: as of a
 *
 * All side by side; `open` counts what is under way, and the last one answers.  A state that has no variables to read (a node of files,
 * a kernel of another language, one that is busy) is said in the reply: the files are worth having all the same.  Copies and nodes
 * made for it go at the end, whatever became of the caller.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/compare.h"
#include "engine/copy.h"
#include "engine/diff-variables.h"
#include "engine/inside.h"

#define INSIDE_SECONDS 25 /* what the program gives itself */
#define INSIDE_TIMEOUT (60 * USEC_PER_SEC)

struct side {
        struct diff *diff;
        char *ref;                   /* owned */
        struct cop_node_row *row;    /* owned */
        struct cop_state_hold *held; /* owned */
        char copy[COP_ID_MAX];
        json_t *view;                            /* owned: of the answer */
        json_t *variables;                       /* owned: the kernel's answer */
        char unavailable[COP_ERROR_MESSAGE_MAX]; /* why there are none */
        usec_t begun;                            /* of the step under way, CLOCK_MONOTONIC */
        json_t *timings;                         /* owned */
};

struct diff {
        struct cop_engine *engine;
        uint64_t serial; /* of the caller's operation */
        struct side a, b;
        char *context; /* owned; NULL = the default one */
        bool files_wanted, variables_wanted, text;
        unsigned open;
        usec_t begun, files_begun;
        json_t *files; /* owned */
        double files_ms;
        struct cop_error err; /* when failed: the first that went wrong */
        bool failed;
};

static double ms_since(usec_t begun)
{
        return (double)(cop_now(CLOCK_MONOTONIC) - begun) / USEC_PER_MSEC;
}

static void step_done(struct side *s, const char *name)
{
        json_object_set_new(s->timings, name, json_real(ms_since(s->begun)));
        s->begun = cop_now(CLOCK_MONOTONIC);
}

/* -- the end --------------------------------------------------------------------------------------------------------------- */

static void side_done(struct diff *d, struct side *s)
{
        cop_copy_drop(d->engine, s->copy);
        cop_state_let_go(s->held);
        cop_node_row_free(s->row);
        json_decref(s->view);
        json_decref(s->variables);
        json_decref(s->timings);
        free(s->ref);
}

static void diff_free(struct diff *d)
{
        side_done(d, &d->a);
        side_done(d, &d->b);
        json_decref(d->files);
        free(d->context);
        free(d);
}

static json_t *side_view(const struct side *s)
{
        json_t *view = json_pack("{s:s, s:s, s:s, s:s}", "ref", s->ref, "node_id", s->row->id, "sandbox_id",
                                 s->row->sandbox_id, "kind", s->row->kind);

        if (view && s->row->name)
                json_object_set_new(view, "name", json_string(s->row->name));
        return view;
}

static json_t *variables_view(const struct diff *d)
{
        json_t *view;

        if (d->a.variables && d->b.variables) {
                view = cop_diff_variables(d->a.variables, d->b.variables);
        } else {
                const struct side *s = d->a.variables ? &d->b : &d->a;
                _cleanup_json_ json_t *text = cop_json_foreign_string(s->unavailable, strlen(s->unavailable));
                view = json_pack("{s:O}", "unavailable", text);
        }
        if (view)
                json_object_set_new(view, "context", json_string(d->context ? d->context : "default"));
        return view;
}

static void answer(struct diff *d)
{
        struct cop_op *op = cop_op_find(d->engine, d->serial);

        if (d->failed) {
                struct cop_error err = d->err;
                diff_free(d);
                cop_op_done(op, NULL, &err);
                return;
        }
        json_t *timings =
                json_pack("{s:f, s:O, s:O}", "total_ms", ms_since(d->begun), "a", d->a.timings, "b", d->b.timings);
        json_t *view = json_pack("{s:O, s:O, s:o}", "a", d->a.view, "b", d->b.view, "timings", timings);
        if (view && d->files) {
                json_object_set_new(timings, "files_ms", json_real(d->files_ms));
                json_object_set(view, "files", d->files);
        }
        if (view && d->variables_wanted)
                json_object_set_new(view, "variables", variables_view(d));
        diff_free(d);
        cop_op_done(op, view, NULL);
}

static void part_done(struct diff *d)
{
        if (--d->open == 0)
                answer(d);
}

static void part_failed(struct diff *d, const struct cop_error *err)
{
        if (!d->failed)
                d->err = *err;
        d->failed = true;
        part_done(d);
}

/* -- variables --------------------------------------------------------------------------------------------------------------- */

static void no_variables(struct side *s, const char *why)
{
        snprintf(s->unavailable, sizeof(s->unavailable), "%s: %.400s", s->ref, why);
        part_done(s->diff);
}

static void on_variables(json_t *reply, const struct cop_error *err, void *userdata)
{
        struct side *s = userdata;

        step_done(s, "read_ms");
        cop_copy_drop(s->diff->engine, s->copy); /* now: the other side may take longer */
        s->copy[0] = '\0';
        if (err) {
                no_variables(s, err->message);
                return;
        }
        s->variables = json_incref(reply);
        part_done(s->diff);
}

static void on_copy(const char *id, const struct cop_error *err, void *userdata)
{
        struct side *s = userdata;
        struct diff *d = s->diff;

        step_done(s, "copy_ms");
        if (err) {
                no_variables(s, err->message);
                return;
        }
        snprintf(s->copy, sizeof(s->copy), "%s", id);
        _cleanup_json_ json_t *request = json_pack("{s:i}", "seconds", INSIDE_SECONDS);
        const struct cop_inside_params p = {
                .context = d->context,
                .program = cop_inside_variables,
                .program_len = cop_inside_variables_len,
                .title = "variables",
                .request = request,
                .timeout = INSIDE_TIMEOUT,
        };
        cop_inside_run(d->engine, s->copy, &p, on_variables, s);
}

static void read_variables(struct side *s)
{
        struct cop_error err;
        bool empty = false;

        s->diff->open++;
        s->begun = cop_now(CLOCK_MONOTONIC);
        if (cop_state_check_context(s->row, s->diff->context, &empty, &err) < 0) {
                no_variables(s, err.message);
        } else if (empty) {
                s->variables = json_object();
                part_done(s->diff);
        } else {
                cop_copy_make(s->diff->engine, s->row->id, false, on_copy, s);
        }
}

/* -- files ------------------------------------------------------------------------------------------------------------------- */

static void on_files(json_t *files, const struct cop_error *err, void *userdata)
{
        struct diff *d = userdata;

        d->files_ms = ms_since(d->files_begun);
        if (err) {
                part_failed(d, err);
                return;
        }
        d->files = json_incref(files);
        part_done(d);
}

/* -- the beginning --------------------------------------------------------------------------------------------------------- */

/* A copy of the row that is ours. */
static struct cop_node_row *own_row(struct cop_engine *e, const struct cop_node_row *row, struct cop_error *err)
{
        struct cop_node_row *own = NULL;

        return cop_store_node_get(e->store, row->id, &own, err) < 0 ? NULL : own;
}

static void compare_files(struct diff *d)
{
        d->open++;
        d->files_begun = cop_now(CLOCK_MONOTONIC);
        cop_compare_nodes(d->engine, d->a.row, d->b.row, d->text, on_files, d);
}

static void on_state(struct cop_node_row *row, struct cop_state_hold *held, const struct cop_error *err, void *userdata)
{
        struct side *s = userdata;
        struct diff *d = s->diff;
        struct cop_error error;

        step_done(s, "node_ms");
        s->held = held;
        if (!err && !(s->row = own_row(d->engine, row, &error)))
                err = &error;
        if (err) {
                part_failed(d, err);
                return;
        }
        s->view = side_view(s);
        if (d->variables_wanted && !d->failed)
                read_variables(s);
        if (d->files_wanted && d->a.row && d->b.row)
                compare_files(d);
        part_done(d);
}

static struct diff *diff_new(struct cop_engine *e, const struct cop_diff_params *p)
{
        struct diff *d = calloc(1, sizeof(*d));
        struct side *sides[2] = {d ? &d->a : NULL, d ? &d->b : NULL};
        const char *const refs[] = {p->a, p->b};

        if (!d)
                return NULL;
        d->engine = e;
        d->files_wanted = p->files;
        d->variables_wanted = p->variables;
        d->text = p->text;
        d->begun = cop_now(CLOCK_MONOTONIC);
        d->context = p->context ? strdup(p->context) : NULL;
        for (size_t i = 0; i < ELEMENTSOF(sides); i++) {
                sides[i]->diff = d;
                sides[i]->ref = strdup(refs[i]);
                sides[i]->timings = json_object();
                sides[i]->begun = d->begun;
        }
        if (!d->a.ref || !d->b.ref || (p->context && !d->context)) {
                diff_free(d);
                return NULL;
        }
        return d;
}

void cop_diff(struct cop_engine *e, const struct cop_diff_params *p, struct cop_op_to to, struct cop_op **ret_op)
{
        struct diff *d = diff_new(e, p);

        if (ret_op)
                *ret_op = NULL;
        if (!d) {
                cop_answer(to, NULL, NULL);
                return;
        }
        struct cop_op *op = cop_op_new(e, to, NULL, NULL);
        if (!op) {
                diff_free(d);
                return;
        }
        uint64_t serial = d->serial = cop_op_serial(op);
        d->open = 3; /* two sides, and this function */
        cop_state_find(e, d->a.ref, !p->variables, on_state, &d->a);
        cop_state_find(e, d->b.ref, !p->variables, on_state, &d->b);
        part_done(d);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
