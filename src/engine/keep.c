/* Keeping the winner of a fork: it becomes persistent, and the other copies of the same fork are removed. */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

struct keeping {
        struct cop_op *op;
        json_t *sandbox, *removed; /* owned */
        unsigned open;
};

struct sibling {
        struct keeping *keeping;
        json_t *view; /* owned: what the reply says of it */
};

static void keeping_done(struct keeping *k)
{
        if (--k->open > 0)
                return;
        cop_op_done(k->op, json_pack("{s:o, s:o}", "sandbox", k->sandbox, "removed", k->removed), NULL);
        free(k);
}

static void on_removed(json_t *result, const struct cop_error *err, void *userdata)
{
        struct sibling *s = userdata;
        struct keeping *k = s->keeping;

        json_object_set_new(s->view, "removed", json_boolean(result != NULL));
        if (err) {
                json_object_set_new(s->view, "code", json_string(cop_err_code_name(err->code)));
                json_object_set_new(s->view, "message", json_string(err->message));
        }
        json_array_append_new(k->removed, s->view);
        free(s);
        keeping_done(k);
}

static void remove_sibling(struct keeping *k, struct cop_sandbox *sb)
{
        struct sibling *s = calloc(1, sizeof(*s));

        if (!s) {
                json_array_append_new(k->removed, json_pack("{s:s, s:b, s:s, s:s}", "id", sb->id, "removed", 0, "code",
                                                            cop_err_code_name(COP_ERR_no_memory), "message",
                                                            "out of memory in the daemon"));
                return;
        }
        s->keeping = k;
        s->view = json_pack("{s:s, s:s*}", "id", sb->id, "name", sb->name);
        k->open++;
        cop_sandbox_remove(sb->engine, sb->id, (struct cop_op_to){.done = on_removed, .userdata = s}, NULL);
}

/* Sandboxes made from a snapshot share that, but nobody made them as one choice among others. */
static int check_fork(struct cop_sandbox *sb, struct cop_error *err)
{
        return sb->row->fork_id[0]
                       ? 0
                       : cop_error_set(err, EINVAL, COP_ERR_invalid_state,
                                       "sandbox %s was not made by a fork: it has no siblings to drop", sb->id);
}

static int make_persistent(struct cop_sandbox *sb, struct cop_error *err)
{
        _cleanup_json_ json_t *patch = json_pack("{s:b}", "persistent", 1);
        char *old = sb->row->policy, *text;

        if (!patch)
                return cop_error_errno(err, ENOMEM, "sandbox %s", sb->id);
        int r = cop_policy_to_json(old, patch, &text, err);
        if (r < 0)
                return r;
        sb->row->policy = text;
        r = cop_store_sandbox_update(sb->engine->store, sb->row, err);
        if (r < 0) {
                sb->row->policy = old;
                free(text);
                return r;
        }
        free(old);
        cop_policy_from_json(sb->row->policy, &sb->policy);
        cop_policy_changed(sb->engine);
        return 0;
}

static int keep(struct keeping *k, struct cop_sandbox *sb, bool drop_siblings, struct cop_error *err)
{
        int r = drop_siblings ? check_fork(sb, err) : 0;

        if (r == 0)
                r = make_persistent(sb, err);
        if (r < 0)
                return r;
        k->sandbox = cop_sandbox_view(sb);
        for (struct cop_sandbox *other = sb->engine->sandboxes; drop_siblings && other; other = other->next)
                if (other != sb && other->state < COP_SANDBOX_ENDING &&
                    strcmp(other->row->fork_id, sb->row->fork_id) == 0)
                        remove_sibling(k, other);
        return 0;
}

void cop_sandbox_keep(struct cop_engine *e, const char *ref, bool drop_siblings, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        struct cop_sandbox *sb;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (cop_sandbox_find(e, ref, &sb, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct keeping *k = calloc(1, sizeof(*k));
        if (!k || !(k->op = cop_op_new(e, to, NULL, NULL))) {
                if (!k)
                        cop_answer(to, NULL, NULL);
                free(k);
                return;
        }
        k->removed = json_array();
        k->open = 1;
        uint64_t serial = cop_op_serial(k->op);
        if (keep(k, sb, drop_siblings, &err) < 0) {
                cop_op_done(k->op, NULL, &err);
                json_decref(k->removed);
                free(k);
        } else {
                keeping_done(k);
        }
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
