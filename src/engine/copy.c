#include "engine/copy.h"

#include <stdlib.h>
#include <string.h>

#define COPY_TTL (600 * USEC_PER_SEC)
#define LOOKS_MAX 4 /* at a sandbox in the middle of something */
#define MAKE_TRIES 3

/* -- which node it is ---------------------------------------------------------------------------------------------- */

struct finding {
        struct cop_engine *engine;
        char *ref; /* owned */
        bool files_only;
        unsigned looks;
        char former[COP_ID_MAX], former_cell[COP_ID_MAX];
        cop_state_fn fn;
        void *userdata;
};

struct cop_state_hold {
        struct cop_engine *engine;
        struct cop_hold *hold;
        char node[COP_ID_MAX],
                former[COP_ID_MAX]; /* former: the head that it replaced; "" = it is not to be given back */
};

static int hold(const struct finding *f, const struct cop_node_row *row, struct cop_state_hold **ret,
                struct cop_error *err)
{
        struct cop_state_hold *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "node %s", row->id);
        int r = cop_node_hold(f->engine, row, &s->hold, err);
        if (r < 0) {
                free(s);
                return r;
        }
        s->engine = f->engine;
        memcpy(s->node, row->id, sizeof(s->node));
        memcpy(s->former, f->former, sizeof(s->former));
        *ret = s;
        return 0;
}

void cop_state_let_go(struct cop_state_hold *s)
{
        if (!s)
                return;
        cop_node_let_go(s->hold);
        if (!s->engine->closing) {
                cop_node_release_read(s->engine, s->node);
                if (s->former[0])
                        cop_node_release_read(s->engine, s->former);
        }
        free(s);
}

static void found(struct finding *f, struct cop_node_row *row, const struct cop_error *err)
{
        struct cop_state_hold *held = NULL;
        struct cop_error error;

        if (row && !err && hold(f, row, &held, &error) < 0)
                err = &error;
        f->fn(err ? NULL : row, held, err, f->userdata);
        free(f->ref);
        free(f);
}

/* A former head from before a cell is where undo goes, and where one that failed sends its user: that one stays. */
static void on_made(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        struct finding *f = userdata;
        struct cop_sandbox *sb = row ? cop_sandbox_by_id(f->engine, row->sandbox_id) : NULL;

        if (!sb || strcmp(f->former_cell, row->cell_id) != 0 || cop_sandbox_busy_with_running(sb) ||
            strcmp(f->former, row->id) == 0)
                f->former[0] = '\0';
        found(f, row, err);
}

/* The node becomes the head.  The former one, when it only served a reader or a fork, may have served its time. */
static void note_former_head(struct finding *f, struct cop_sandbox *sb)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *head = NULL;

        if (!f->files_only && sb->row->node_id[0] &&
            cop_store_node_get(f->engine->store, sb->row->node_id, &head, NULL) == 0 &&
            strcmp(head->sandbox_id, sb->id) == 0) {
                memcpy(f->former, head->id, sizeof(f->former));
                memcpy(f->former_cell, head->cell_id, sizeof(f->former_cell));
        }
}

static void on_running(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct finding *f = userdata;
        const struct cop_node_params p = {.reason = COP_NODE_FORK, .files_only = f->files_only};

        if (!sb) {
                found(f, NULL, err);
                return;
        }
        note_former_head(f, sb);
        cop_node_make(sb, &p, on_made, f);
}

static void look(struct finding *f);

static void on_asleep(json_t *result, const struct cop_error *err, void *userdata)
{
        struct finding *f = userdata;

        if (err && f->engine->closing)
                found(f, NULL, err);
        else
                look(f); /* it sleeps, or it could not: then it runs */
}

static void find_node(struct finding *f)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_sandbox *sb;
        struct cop_error err;

        int r = cop_store_node_get(f->engine->store, f->ref, &row, &err);
        if (r == -ENOENT) {
                r = cop_sandbox_find(f->engine, f->ref, &sb, &err);
                if (r == -ENOENT)
                        cop_error_set(
                                &err, ENOENT, COP_ERR_node_not_found,
                                "no sandbox, snapshot or node \"%.80s\"; see `coppice ls`, `coppice snapshot ls` and "
                                "`coppice log`",
                                f->ref);
        }
        found(f, row, row ? NULL : &err);
}

static void look(struct finding *f)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_sandbox *sb = cop_sandbox_by_ref(f->engine, f->ref);
        struct cop_error err;

        if (!sb || sb->state >= COP_SANDBOX_ENDING) {
                find_node(f);
        } else if (sb->state == COP_SANDBOX_SUSPENDED) {
                int r = cop_store_node_get(f->engine->store, sb->row->node_id, &row, &err);
                found(f, row, r < 0 ? &err : NULL);
        } else if (sb->state == COP_SANDBOX_SUSPENDING && f->looks++ < LOOKS_MAX) {
                cop_sandbox_suspend(f->engine, sb->id, (struct cop_op_to){.done = on_asleep, .userdata = f}, NULL);
        } else {
                cop_sandbox_when_running(f->engine, sb->id, on_running, f);
        }
}

void cop_state_find(struct cop_engine *e, const char *ref, bool files_only, cop_state_fn fn, void *userdata)
{
        struct finding *f = calloc(1, sizeof(*f));
        struct cop_error err;

        if (!f || !(f->ref = strdup(ref))) {
                free(f);
                cop_error_errno(&err, ENOMEM, "state %.80s", ref);
                fn(NULL, NULL, &err, userdata);
                return;
        }
        f->engine = e;
        f->files_only = files_only;
        f->fn = fn;
        f->userdata = userdata;
        look(f);
}

int cop_state_check_context(const struct cop_node_row *row, const char *context, bool *ret_empty, struct cop_error *err)
{
        _cleanup_json_ json_t *spec = json_loads(row->spec, 0, NULL);
        json_t *c, *wanted = NULL;
        size_t i;

        context = context ? context : "default";
        if (strcmp(row->kind, "memory") != 0)
                return cop_error_set(err, EINVAL, COP_ERR_invalid_state, "a state of files alone has no variables");
        json_array_foreach (json_object_get(spec, "contexts"), i, c) {
                const char *id = json_string_value(json_object_get(c, "id")),
                           *name = json_string_value(json_object_get(c, "name"));
                if ((id && strcmp(id, context) == 0) || (!wanted && name && strcmp(name, context) == 0))
                        wanted = c;
        }
        if (!wanted)
                return cop_error_set(err, ENOENT, COP_ERR_context_not_found, "it has no context \"%.80s\"", context);
        const char *state = json_string_value(json_object_get(wanted, "state")),
                   *language = json_string_value(json_object_get(wanted, "language"));
        if (language && strcmp(language, "python") != 0)
                return cop_error_set(err, EINVAL, COP_ERR_invalid_state,
                                     "context %.80s runs %.40s; only Python's variables can be read", context,
                                     language);
        if (state && strcmp(state, "busy") == 0)
                return cop_error_set(err, EBUSY, COP_ERR_invalid_state,
                                     "a cell is running in context %.80s; interrupt or await it", context);
        *ret_empty = !state || strcmp(state, "idle") != 0; /* no kernel was ready */
        return 0;
}

/* -- copies ------------------------------------------------------------------------------------------------------------ */

struct copying {
        struct cop_engine *engine;
        char node[COP_ID_MAX];
        bool files_only;
        unsigned tries;
        cop_copy_fn fn;
        void *userdata;
};

static void copied(struct copying *c, const char *id, const struct cop_error *err)
{
        c->fn(id, err, c->userdata);
        free(c);
}

static unsigned count_copies(struct cop_engine *e)
{
        unsigned n = 0;

        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next)
                n += sb->policy.copy && sb->state < COP_SANDBOX_ENDING;
        return n;
}

static void create(struct copying *c);

static void on_created(json_t *result, const struct cop_error *err, void *userdata)
{
        struct copying *c = userdata;

        /* As when a sandbox is woken: a race of the rebuilding may not come again. */
        if (err && err->code == COP_ERR_start_failed && ++c->tries < MAKE_TRIES && !c->engine->closing)
                create(c);
        else
                copied(c, err ? NULL : json_string_value(json_object_get(result, "id")), err);
}

static void create(struct copying *c)
{
        const struct cop_sandbox_params p = {
                .node = c->node,
                .ttl = COPY_TTL,
                .no_reseed = true,
                .copy = true,
                .files_only = c->files_only,
        };

        cop_sandbox_create(c->engine, &p, (struct cop_op_to){.done = on_created, .userdata = c}, NULL);
}

void cop_copy_make(struct cop_engine *e, const char *node, bool files_only, cop_copy_fn fn, void *userdata)
{
        struct copying *c = calloc(1, sizeof(*c));
        struct cop_error err;

        if (!c) {
                cop_error_errno(&err, ENOMEM, "copy of node %s", node);
                fn(NULL, &err, userdata);
                return;
        }
        *c = (struct copying){.engine = e, .files_only = files_only, .fn = fn, .userdata = userdata};
        snprintf(c->node, sizeof(c->node), "%s", node);
        if (e->closing)
                cop_error_set(&err, ESHUTDOWN, COP_ERR_unavailable, "the daemon is stopping");
        else if (count_copies(e) >= COP_COPIES_MAX)
                cop_error_set(&err, EAGAIN, COP_ERR_too_many,
                              "%d states are being read already; try again when one of them is done", COP_COPIES_MAX);
        else {
                create(c);
                return;
        }
        copied(c, NULL, &err);
}

void cop_copy_drop(struct cop_engine *e, const char *id)
{
        struct cop_sandbox *sb = id[0] && !e->closing ? cop_sandbox_by_id(e, id) : NULL;

        if (sb)
                cop_sandbox_end(sb, "removed", NULL);
}
