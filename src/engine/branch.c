/* Snapshots, sandboxes made from nodes, and forks.
 *
 * A fork is a node of the running sandbox and any number of sandboxes made from it: they thaw the same image, so their memory is
 * shared until it is written.  The node is the head where nothing has run since that was made (node.c).  Each child succeeds or
 * fails by itself.  While the node is being made, so are the parts of the first children that do not depend on it
 * (sandbox-prepare.c), on processors that would be idle.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/parse.h"

#define FORK_MAX 100
#define FORK_AHEAD 8

static json_t *error_view(const struct cop_error *err)
{
        return json_pack("{s:b, s:s, s:s, s:b}", "error", 1, "code", cop_err_code_name(err->code), "message",
                         err->message, "retryable", cop_err_code_retryable(err->code));
}

/* -- snapshot ---------------------------------------------------------------------------------------------------------------- */

struct snapshot {
        struct cop_op *op;
        char *name; /* owned */
        bool files_only;
        usec_t lifetime;
};

static void snapshot_free(struct snapshot *s)
{
        free(s->name);
        free(s);
}

static void on_snapshot(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        cop_op_done_durable(userdata, row ? cop_node_view(row) : NULL, err);
}

static void begin_snapshot(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct snapshot *s = userdata;

        if (!sb) {
                cop_op_done(s->op, NULL, err);
        } else {
                const struct cop_node_params p = {.reason = COP_NODE_SNAPSHOT,
                                                  .files_only = s->files_only,
                                                  .name = s->name,
                                                  .lifetime = s->lifetime};
                cop_node_make(sb, &p, on_snapshot, s->op);
        }
        snapshot_free(s);
}

int cop_node_check_name(struct cop_engine *e, const char *name, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;

        if (!name)
                return 0;
        if (!cop_name_valid(name) || strncmp(name, "nd_", 3) == 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"name\": expected 1-63 of letters, digits, . _ -");
        if (cop_store_node_get(e->store, name, &row, NULL) == 0)
                return cop_error_set(err, EEXIST, COP_ERR_name_taken,
                                     "a snapshot is already named \"%s\"; choose another name or remove it", name);
        return 0;
}

void cop_sandbox_snapshot(struct cop_engine *e, const char *ref, const char *name, bool files_only, usec_t lifetime,
                          struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (cop_node_check_name(e, name, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct snapshot *s = calloc(1, sizeof(*s));
        if (!s || !(s->op = cop_op_new(e, to, NULL, NULL))) {
                if (!s)
                        cop_answer(to, NULL, NULL);
                free(s);
                return;
        }
        s->name = name ? strdup(name) : NULL;
        s->files_only = files_only;
        s->lifetime = lifetime;
        cop_op_when_running(s->op, e, ref, begin_snapshot, s, ret_op);
}

/* -- children of a node --------------------------------------------------------------------------------------------------------- */

struct branching {
        struct cop_engine *engine;
        struct cop_op *op;
        json_t *params; /* owned: labels, metadata, ttl_seconds, name */
        unsigned count, open;
        json_t *sandboxes;                             /* owned array: a Sandbox or an error each */
        json_t *node;                                  /* owned view */
        char node_id[COP_ID_MAX], fork_id[COP_ID_MAX]; /* fork_id "": of a snapshot, not one choice among others */
        struct cop_sandbox *prepared[FORK_AHEAD];      /* owned; of the first children, NULL = not */
};

static void branching_free(struct branching *b)
{
        for (size_t i = 0; i < FORK_AHEAD; i++)
                cop_sandbox_unprepare(b->prepared[i]);
        json_decref(b->params);
        json_decref(b->sandboxes);
        json_decref(b->node);
        free(b);
}

static void branching_done(struct branching *b)
{
        if (--b->open > 0)
                return;
        cop_op_done(b->op, json_pack("{s:O, s:O}", "node", b->node, "sandboxes", b->sandboxes), NULL);
        /* A node that only served the fork stays as long as the children need it. */
        branching_free(b);
}

static void on_child(json_t *result, const struct cop_error *err, void *userdata)
{
        struct branching *b = userdata;

        if (result)
                json_array_append(b->sandboxes, result);
        else
                json_array_append_new(b->sandboxes, error_view(err));
        branching_done(b);
}

/* NULL = none. */
static const char *child_name(const struct branching *b, unsigned i, char buf[static 80])
{
        const char *name = json_string_value(json_object_get(b->params, "name"));

        if (!name || b->count == 1)
                return name;
        snprintf(buf, 80, "%.60s-%u", name, i + 1);
        return buf;
}

static void make_children(struct branching *b)
{
        const char *env = json_string_value(json_object_get(b->params, "env"));
        json_t *ttl = json_object_get(b->params, "ttl_seconds");

        b->open = b->count + 1;
        for (unsigned i = 0; i < b->count; i++) {
                char numbered[80];
                const struct cop_sandbox_params p = {
                        .name = child_name(b, i, numbered),
                        .node = b->node_id,
                        .fork = b->fork_id,
                        .branches = b->count,
                        .labels = json_object_get(b->params, "labels"),
                        .metadata = json_object_get(b->params, "metadata"),
                        .ttl = json_is_number(ttl) ? (usec_t)(json_number_value(ttl) * 1e6) : USEC_INFINITY,
                        .policy = json_object_get(b->params, "policy"),
                        .start_kernel = true,
                        .inherit_env = env && strcmp(env, "inherit") == 0,
                        .no_reseed = json_is_false(json_object_get(b->params, "reseed")),
                        .prepared = i < FORK_AHEAD ? TAKE_PTR(b->prepared[i]) : NULL,
                };
                cop_sandbox_create(b->engine, &p, (struct cop_op_to){.done = on_child, .userdata = b}, NULL);
        }
        branching_done(b);
}

static void on_fork_node(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        struct branching *b = userdata;

        if (!row) {
                cop_op_done(b->op, NULL, err);
                branching_free(b);
                return;
        }
        b->node = cop_node_view(row);
        snprintf(b->node_id, sizeof(b->node_id), "%s", row->id);
        make_children(b);
}

/* How many children are prepared: one for each processor that the freeze leaves idle.  More would only take time from it, and the source
 * stands still for a part of that. */
static unsigned ahead(const struct branching *b)
{
        long idle = sysconf(_SC_NPROCESSORS_ONLN) - 1;
        unsigned most = idle > 0 ? (unsigned)idle : 0;

        most = MIN_OF(most, (unsigned)FORK_AHEAD);
        return MIN_OF(most, b->count);
}

static void begin_fork(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct branching *b = userdata;
        struct cop_engine *e = b->engine;
        uint64_t serial = cop_op_serial(b->op);

        if (!sb) {
                on_fork_node(NULL, err, b);
                return;
        }
        const struct cop_node_params p = {.reason = COP_NODE_FORK};
        cop_node_make(sb, &p, on_fork_node, b);
        if (!cop_op_find(e, serial)) /* it has failed already */
                return;
        unsigned first = cop_spare_fits(e, sb->row); /* the first one has it already */
        for (unsigned i = first; i < MIN_OF(first + ahead(b), b->count) && i < FORK_AHEAD; i++)
                b->prepared[i] = cop_sandbox_prepare(e, sb->row);
}

static struct branching *branching_new(struct cop_engine *e, json_t *params, unsigned count, struct cop_op_to to,
                                       struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (count < 1 || count > FORK_MAX) {
                cop_error_set(&err, EINVAL, COP_ERR_bad_request,
                              "field \"count\": expected a whole number from 1 to %d", FORK_MAX);
                cop_answer(to, NULL, &err);
                return NULL;
        }
        struct branching *b = calloc(1, sizeof(*b));
        if (!b || !(b->op = cop_op_new(e, to, NULL, NULL))) {
                if (!b)
                        cop_answer(to, NULL, NULL);
                free(b);
                return NULL;
        }
        b->engine = e;
        b->count = count;
        b->params = json_incref(params);
        b->sandboxes = json_array();
        return b;
}

void cop_sandbox_fork(struct cop_engine *e, const char *ref, json_t *params, unsigned count, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        struct branching *b = branching_new(e, params, count, to, ret_op);

        if (!b)
                return;
        cop_id_new(b->fork_id, "fk_", 10);
        cop_op_when_running(b->op, e, ref, begin_fork, b, ret_op);
}

void cop_node_branch(struct cop_engine *e, const char *ref, json_t *params, unsigned count, struct cop_op_to to,
                     struct cop_op **ret_op)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_error err;

        if (cop_store_node_get(e->store, ref, &row, &err) < 0) {
                if (ret_op)
                        *ret_op = NULL;
                cop_answer(to, NULL, &err);
                return;
        }
        struct branching *b = branching_new(e, params, count, to, ret_op);
        if (!b)
                return;
        uint64_t serial = cop_op_serial(b->op);
        on_fork_node(row, NULL, b);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
