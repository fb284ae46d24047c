/* The API's Sandbox object. */
#include "engine/sandbox.h"

#include <string.h>

static const char *state_name(const struct cop_sandbox *sb)
{
        switch (sb->state) {
        case COP_SANDBOX_STARTING:
                return "starting";
        case COP_SANDBOX_RUNNING:
                return "running";
        case COP_SANDBOX_SUSPENDING:
                return "suspending";
        case COP_SANDBOX_SUSPENDED:
                return "suspended";
        case COP_SANDBOX_RESUMING:
                return "resuming";
        case COP_SANDBOX_ENDING:
                return "ending";
        case COP_SANDBOX_ENDED:
                break;
        }
        return "ended";
}

static void set_text(json_t *object, const char *key, const char *text)
{
        if (text)
                json_object_set_new(object, key, json_string(text));
}

void cop_view_time(json_t *object, const char *key, usec_t at)
{
        char stamp[COP_RFC3339_MAX];

        if (at)
                json_object_set_new(object, key, json_string(cop_rfc3339(at, stamp)));
}

static void set_json(json_t *object, const char *key, const char *text)
{
        json_t *value = text ? json_loads(text, 0, NULL) : NULL;

        json_object_set_new(object, key, value ? value : json_object());
}

/* What it was made from; the node may be gone. */
static json_t *origin_view(struct cop_engine *e, const char *id)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;

        if (cop_store_node_get(e->store, id, &node, NULL) < 0)
                return json_pack("{s:s}", "node_id", id);
        json_t *v = json_pack("{s:s, s:s}", "node_id", id, "sandbox_id", node->sandbox_id);
        set_text(v, "snapshot", node->name);
        if (strcmp(node->reason, "golden") == 0)
                json_object_set_new(v, "golden", json_true());
        return v;
}

/* A setter that runs out of memory leaves its field away; only the object itself is looked at. */
static json_t *view(struct cop_engine *e, const struct cop_sandbox_row *row, const char *state)
{
        json_t *v = json_pack("{s:s, s:s, s:{s:s, s:s*}}", "id", row->id, "state", state, "image", "id", row->image_id,
                              "name", row->image_name);

        if (!v)
                return NULL;
        set_text(v, "name", row->name);
        cop_view_time(v, "created_at", row->created_at);
        cop_view_time(v, "started_at", row->started_at);
        cop_view_time(v, "ended_at", row->ended_at);
        set_text(v, "ended_reason", row->ended_reason);
        set_json(v, "labels", row->labels);
        set_json(v, "metadata", row->metadata);
        set_json(v, "env", row->env);
        if (row->ttl) {
                json_object_set_new(v, "ttl_seconds", json_real((double)row->ttl / USEC_PER_SEC));
                cop_view_time(v, "expires_at", row->expires_at);
        }
        set_json(v, "limits", row->limits);
        set_text(v, "user", row->user);
        set_text(v, "workdir", row->workdir);
        json_object_set_new(v, "generation", json_integer((json_int_t)row->generation));
        if (row->node_id[0])
                json_object_set_new(v, "node_id", json_string(row->node_id));
        if (row->origin_node[0])
                json_object_set_new(v, "origin", origin_view(e, row->origin_node));
        struct cop_policy policy;
        cop_policy_from_json(row->policy, &policy);
        json_object_set_new(v, "policy", cop_policy_view(&policy));
        if (row->start_time)
                json_object_set_new(v, "start_ms", json_real((double)row->start_time / USEC_PER_MSEC));
        return v;
}

json_t *cop_sandbox_view(struct cop_sandbox *sb)
{
        json_t *v = view(sb->engine, sb->row, state_name(sb));

        if (v) {
                json_t *contexts = cop_contexts_view(sb);
                json_object_set_new(v, "contexts", contexts ? contexts : json_array());
                cop_policy_add_times(sb, v);
        }
        return v;
}

json_t *cop_sandbox_row_view(struct cop_engine *e, const struct cop_sandbox_row *row)
{
        json_t *v = view(e, row, row->state);

        if (v)
                json_object_set_new(v, "contexts", json_array());
        return v;
}
