/* Saved states: suspend, resume, snapshots, forks, undo and the tree of nodes. */
#include "base/parse.h"
#include "fields.h"
#include "progress.h"

#define FORK_MAX 100
#define MEMORY_MIN (16u << 20)
#define UNDO_MAX 10000
#define LIFETIME_MAX (3660ULL * 86400 * USEC_PER_SEC)

static bool fields_are(struct cop_request *r, const char *const *fields)
{
        struct cop_error err = COP_ERROR_NULL;

        if (cop_json_check_keys(r->json, fields, &err) == 0)
                return true;
        cop_reply_error(r, &err);
        return false;
}

static void suspend(struct cop_request *r)
{
        static const char *const fields[] = {NULL};

        if (fields_are(r, fields))
                cop_sandbox_suspend(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

/* {memory?, cpus?} as a patch of the sandbox: sizes in bytes. */
static int resume_limits(json_t *body, json_t *limits, struct cop_error *err)
{
        unsigned milli = 0;
        uint64_t memory = 0;
        int k = cop_field_size(body, "memory", MEMORY_MIN, &memory, err);

        if (k > 0)
                json_object_set_new(limits, "memory", json_integer((json_int_t)memory));
        if (k >= 0 && (k = cop_field_cpus(body, "cpus", &milli, err)) > 0)
                json_object_set(limits, "cpus", json_object_get(body, "cpus"));
        return MIN_OF(k, 0);
}

static void resume(struct cop_request *r)
{
        static const char *const fields[] = {"require_memory", "replay", "wait", "memory", "cpus", NULL};
        static const char *const modes[] = {"none", "all", "pure", NULL};
        _cleanup_json_ json_t *limits = json_object();
        struct cop_resume_params p = {0};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_op_to to;
        unsigned mode = 0;
        int k;

        if (!fields_are(r, fields))
                return;
        if (cop_json_get_bool(r->json, "require_memory", &p.require_memory, &err) < 0 ||
            cop_json_get_bool(r->json, "wait", &p.wait, &err) < 0 ||
            (k = cop_field_word(r->json, "replay", modes, &mode, &err)) < 0 ||
            resume_limits(r->json, limits, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        p.replay = k > 0 ? modes[mode] : NULL;
        p.limits = json_object_size(limits) > 0 ? limits : NULL;
        if (cop_progress_to(r, "sandbox", &to))
                cop_sandbox_resume(r->engine, cop_request_param(r, 0), &p, to, &r->op);
}

static void snapshot(struct cop_request *r)
{
        static const char *const fields[] = {"name", "kind", "expires_seconds", NULL};
        static const char *const kinds[] = {"memory", "filesystem", NULL};
        struct cop_error err = COP_ERROR_NULL;
        const char *name = NULL;
        usec_t lifetime = 0;
        unsigned kind = 0;

        if (!fields_are(r, fields))
                return;
        int given = cop_json_get_seconds(r->json, "expires_seconds", LIFETIME_MAX, &lifetime, &err);
        if (given > 0 && lifetime == 0)
                given = cop_json_expected("expires_seconds", "a number of seconds above 0", &err);
        if (given < 0 || cop_field_text(r->json, "name", &name, &err) < 0 ||
            cop_field_word(r->json, "kind", kinds, &kind, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        r->success = 201;
        cop_sandbox_snapshot(r->engine, cop_request_param(r, 0), name, kind == 1, lifetime, cop_request_to(r), &r->op);
}

/* Checks {count?, name?, labels?, metadata?, ttl_seconds?}; false after an error reply. */
static bool branch_params(struct cop_request *r, unsigned *count)
{
        static const char *const fields[] = {"count",  "name", "labels", "metadata", "ttl_seconds",
                                             "policy", "env",  "reseed", NULL};
        static const char *const env_words[] = {"none", "inherit", NULL};
        struct cop_error err = COP_ERROR_NULL;
        const char *name = NULL;
        json_t *object = NULL;
        usec_t ttl = 0;
        unsigned word;
        bool reseed;

        *count = 1;
        if (cop_json_check_keys(r->json, fields, &err) < 0 ||
            cop_field_unsigned(r->json, "count", 1, FORK_MAX, count, &err) < 0 ||
            cop_field_text(r->json, "name", &name, &err) < 0 ||
            cop_json_get_strings(r->json, "labels", 64, &object, &err) < 0 ||
            cop_json_get_object(r->json, "metadata", &object, &err) < 0 ||
            cop_json_get_object(r->json, "policy", &object, &err) < 0 ||
            cop_field_word(r->json, "env", env_words, &word, &err) < 0 ||
            cop_json_get_bool(r->json, "reseed", &reseed, &err) < 0 ||
            cop_json_get_seconds(r->json, "ttl_seconds", 366ULL * 86400 * USEC_PER_SEC, &ttl, &err) < 0) {
                cop_reply_error(r, &err);
                return false;
        }
        r->success = 201;
        return true;
}

static void fork_sandbox(struct cop_request *r)
{
        unsigned count;

        if (branch_params(r, &count))
                cop_sandbox_fork(r->engine, cop_request_param(r, 0), r->json, count, cop_request_to(r), &r->op);
}

static void branch(struct cop_request *r)
{
        unsigned count;

        if (branch_params(r, &count))
                cop_node_branch(r->engine, cop_request_param(r, 0), r->json, count, cop_request_to(r), &r->op);
}

/* undo and redo take the same. */
static void step(struct cop_request *r, void (*operation)(struct cop_engine *e, const char *ref, unsigned steps,
                                                          struct cop_op_to to, struct cop_op **ret_op))
{
        static const char *const fields[] = {"steps", NULL};
        struct cop_error err = COP_ERROR_NULL;
        unsigned steps = 1;

        if (!fields_are(r, fields))
                return;
        if (cop_field_unsigned(r->json, "steps", 1, UNDO_MAX, &steps, &err) < 0)
                cop_reply_error(r, &err);
        else
                operation(r->engine, cop_request_param(r, 0), steps, cop_request_to(r), &r->op);
}

static void undo(struct cop_request *r)
{
        step(r, cop_sandbox_undo);
}

static void redo(struct cop_request *r)
{
        step(r, cop_sandbox_redo);
}

static void go_to(struct cop_request *r)
{
        static const char *const fields[] = {"node", NULL};
        struct cop_error err = COP_ERROR_NULL;
        const char *node = NULL;

        if (!fields_are(r, fields))
                return;
        if (cop_field_required(r->json, "node", &node, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_sandbox_goto(r->engine, cop_request_param(r, 0), node, cop_request_to(r), &r->op);
}

static void keep(struct cop_request *r)
{
        static const char *const fields[] = {"drop_siblings", NULL};
        struct cop_error err = COP_ERROR_NULL;
        bool drop_siblings = false;

        if (!fields_are(r, fields))
                return;
        if (cop_json_get_bool(r->json, "drop_siblings", &drop_siblings, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_sandbox_keep(r->engine, cop_request_param(r, 0), drop_siblings, cop_request_to(r), &r->op);
}

static void collect_garbage(struct cop_request *r)
{
        static const char *const fields[] = {"dry_run", NULL};
        struct cop_error err = COP_ERROR_NULL;
        bool dry_run = false;

        if (!fields_are(r, fields))
                return;
        if (cop_json_get_bool(r->json, "dry_run", &dry_run, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_engine_gc(r->engine, dry_run, cop_request_to(r), &r->op);
}

static void nodes_of(struct cop_request *r)
{
        cop_node_list(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

static void snapshots(struct cop_request *r)
{
        cop_node_list(r->engine, NULL, cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_node_get(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

static void remove_one(struct cop_request *r)
{
        cop_node_remove(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

const struct cop_route cop_api_states[] = {
        {"POST", "/api/sandboxes/{sb}/suspend", COP_AUTH_TOKEN, COP_BODY_JSON, 0, suspend},
        {"POST", "/api/sandboxes/{sb}/resume", COP_AUTH_TOKEN, COP_BODY_JSON, 0, resume},
        {"POST", "/api/sandboxes/{sb}/snapshots", COP_AUTH_TOKEN, COP_BODY_JSON, 0, snapshot},
        {"POST", "/api/sandboxes/{sb}/fork", COP_AUTH_TOKEN, COP_BODY_JSON, 0, fork_sandbox},
        {"POST", "/api/sandboxes/{sb}/undo", COP_AUTH_TOKEN, COP_BODY_JSON, 0, undo},
        {"POST", "/api/sandboxes/{sb}/redo", COP_AUTH_TOKEN, COP_BODY_JSON, 0, redo},
        {"POST", "/api/sandboxes/{sb}/goto", COP_AUTH_TOKEN, COP_BODY_JSON, 0, go_to},
        {"POST", "/api/sandboxes/{sb}/keep", COP_AUTH_TOKEN, COP_BODY_JSON, 0, keep},
        {"GET", "/api/sandboxes/{sb}/nodes", COP_AUTH_TOKEN, COP_BODY_NONE, 0, nodes_of},
        {"GET", "/api/snapshots", COP_AUTH_TOKEN, COP_BODY_NONE, 0, snapshots},
        {"GET", "/api/snapshots/{node}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"DELETE", "/api/snapshots/{node}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_one},
        {"POST", "/api/snapshots/{node}/sandboxes", COP_AUTH_TOKEN, COP_BODY_JSON, 0, branch},
        {"POST", "/api/gc", COP_AUTH_TOKEN, COP_BODY_JSON, 0, collect_garbage},
        {0},
};
