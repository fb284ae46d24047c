/* /api/sandboxes: create, list, look, change, remove; their log and kernelspecs. */
#include <string.h>

#include "fields.h"
#include "request.h"
#include "stream.h"

#define MEMORY_MIN (16u << 20)
#define TTL_MAX (3650ULL * 24 * 3600 * USEC_PER_SEC)
#define LABELS_MAX 64

static int parse_params(json_t *body, struct cop_sandbox_params *p, struct cop_error *err)
{
        static const char *const fields[] = {"name",         "image",  "labels", "metadata", "env",
                                             "ttl_seconds",  "memory", "cpus",   "pids",     "nofile",
                                             "start_kernel", "from",   "policy", "golden",   NULL};
        bool golden = true;
        int r;

        if ((r = cop_json_check_keys(body, fields, err)) < 0 ||
            (r = cop_json_get_str(body, "name", &p->name, err)) < 0 || (r = cop_field_check_name(p->name, err)) < 0 ||
            (r = cop_field_text(body, "image", &p->image, err)) < 0 ||
            (r = cop_field_text(body, "from", &p->node, err)) < 0 ||
            (r = cop_json_get_strings(body, "labels", LABELS_MAX, &p->labels, err)) < 0 ||
            (r = cop_json_get_object(body, "metadata", &p->metadata, err)) < 0 ||
            (r = cop_field_env(body, "env", &p->env, err)) < 0 ||
            (r = cop_json_get_seconds(body, "ttl_seconds", TTL_MAX, &p->ttl, err)) < 0 ||
            (r = cop_field_size(body, "memory", MEMORY_MIN, &p->memory, err)) < 0 ||
            (r = cop_field_cpus(body, "cpus", &p->cpu_milli, err)) < 0 ||
            (r = cop_field_unsigned(body, "pids", 8, 4194304, &p->pids, err)) < 0 ||
            (r = cop_field_unsigned(body, "nofile", 64, 1048576, &p->nofile, err)) < 0 ||
            (r = cop_json_get_object(body, "policy", &p->policy, err)) < 0 ||
            (r = cop_json_get_bool(body, "start_kernel", &p->start_kernel, err)) < 0 ||
            (r = cop_json_get_bool(body, "golden", &golden, err)) < 0)
                return r;
        p->cold = !golden;
        if (p->node && p->image)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"image\": not with \"from\": a snapshot has its own image");
        if (p->ttl == 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"ttl_seconds\": must be more than 0; leave it out for no end");
        return 0;
}

static void create(struct cop_request *r)
{
        struct cop_sandbox_params p = {.ttl = USEC_INFINITY, .start_kernel = true};
        struct cop_error err = COP_ERROR_NULL;

        if (parse_params(r->json, &p, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        r->success = 201;
        cop_sandbox_create(r->engine, &p, cop_request_to(r), &r->op);
}

/* label=k=v, as often as wanted */
static int parse_labels(struct cop_request *r, json_t *filter, struct cop_error *err)
{
        json_t *labels = json_object();

        json_object_set_new(filter, "labels", labels);
        for (size_t i = 0; i < r->uri.query_count; i++) {
                if (strcmp(r->uri.query[i].name, "label") != 0)
                        continue;
                const char *text = r->uri.query[i].value, *equals = strchr(text, '=');
                if (!equals || equals == text)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "query parameter \"label\": expected KEY=VALUE");
                _cleanup_free_ char *key = strndup(text, (size_t)(equals - text));
                if (!key || json_object_set_new(labels, key, json_string(equals + 1)) < 0)
                        return cop_error_errno(err, ENOMEM, "labels");
        }
        return 0;
}

static int parse_filter(struct cop_request *r, json_t *filter, struct cop_error *err)
{
        static const char *const names[] = {"state", "label", "name", "limit", "all", NULL};
        static const char *const states[] = {"starting", "running", "suspending", "suspended",
                                             "resuming", "ending",  "ended",      NULL};
        const char *state = NULL, *name = NULL;
        uint64_t limit = 0;
        bool all = false;
        int k;

        if ((k = cop_query_check(&r->uri, names, "label", err)) < 0 ||
            (k = cop_query_str(&r->uri, "state", &state, err)) < 0 ||
            (k = cop_query_str(&r->uri, "name", &name, err)) < 0 ||
            (k = cop_query_u64(&r->uri, "limit", 1, 10000, &limit, err)) < 0 ||
            (k = cop_query_bool(&r->uri, "all", &all, err)) < 0 || (k = parse_labels(r, filter, err)) < 0)
                return k;
        if (state) {
                size_t i = 0;
                while (states[i] && strcmp(states[i], state) != 0)
                        i++;
                if (!states[i])
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "query parameter \"state\": expected starting, running, suspending, "
                                             "suspended, resuming, "
                                             "ending or ended");
                json_object_set_new(filter, "state", json_string(state));
        }
        if (name)
                json_object_set_new(filter, "name", json_string(name));
        if (limit)
                json_object_set_new(filter, "limit", json_integer((json_int_t)limit));
        json_object_set_new(filter, "all", json_boolean(all));
        return 0;
}

static void list(struct cop_request *r)
{
        _cleanup_json_ json_t *filter = json_object();
        struct cop_error err = COP_ERROR_NULL;

        if (parse_filter(r, filter, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_sandbox_list(r->engine, filter, cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_sandbox_get(r->engine, cop_request_param(r, 0), true, cop_request_to(r), &r->op);
}

/* The patch is handed on as it came, after every field was checked. */
static int check_patch(json_t *body, struct cop_error *err)
{
        static const char *const fields[] = {"name", "labels", "metadata", "ttl_seconds", "memory",
                                             "cpus", "pids",   "policy",   NULL};
        const char *name = NULL;
        json_t *object;
        uint64_t memory = 0;
        unsigned n;
        usec_t ttl;
        int r;

        if ((r = cop_json_check_keys(body, fields, err)) < 0 || (r = cop_json_get_str(body, "name", &name, err)) < 0 ||
            (r = cop_field_check_name(name, err)) < 0 ||
            (r = cop_json_get_strings(body, "labels", LABELS_MAX, &object, err)) < 0 ||
            (r = cop_json_get_object(body, "metadata", &object, err)) < 0 ||
            (r = cop_json_get_object(body, "policy", &object, err)) < 0 ||
            (r = cop_field_cpus(body, "cpus", &n, err)) < 0 ||
            (r = cop_json_get_seconds(body, "ttl_seconds", TTL_MAX, &ttl, err)) < 0 ||
            (r = cop_field_unsigned(body, "pids", 8, 4194304, &n, err)) < 0)
                return r;
        r = cop_field_size(body, "memory", MEMORY_MIN, &memory, err);
        if (r > 0) /* one form for the engine: bytes */
                json_object_set_new(body, "memory", json_integer((json_int_t)memory));
        return r < 0 ? r : 0;
}

static void update(struct cop_request *r)
{
        struct cop_error err = COP_ERROR_NULL;

        if (check_patch(r->json, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_sandbox_update(r->engine, cop_request_param(r, 0), r->json, cop_request_to(r), &r->op);
}

static void remove_one(struct cop_request *r)
{
        cop_sandbox_remove(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

static void remove_all(struct cop_request *r)
{
        static const char *const names[] = {"all", NULL};
        struct cop_error err = COP_ERROR_NULL;
        bool all = false;
        int k = cop_query_check(&r->uri, names, NULL, &err);

        if (k == 0)
                k = cop_query_bool(&r->uri, "all", &all, &err);
        if (k >= 0 && !all)
                k = cop_error_set(&err, EINVAL, COP_ERR_bad_request,
                                  "add ?all=true to remove every sandbox, or name one: DELETE /api/sandboxes/ID");
        if (k < 0)
                cop_reply_error(r, &err);
        else
                cop_sandbox_remove_all(r->engine, cop_request_to(r), &r->op);
}

static void logs(struct cop_request *r)
{
        static const char *const names[] = {"after", "follow", NULL};
        struct cop_error err = COP_ERROR_NULL;
        uint64_t after = 0;
        bool follow = false;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 ||
            cop_query_u64(&r->uri, "after", 0, INT64_MAX, &after, &err) < 0 ||
            cop_query_bool(&r->uri, "follow", &follow, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        cop_stream_record(r, COP_RECORD_SANDBOX_LOG, cop_request_param(r, 0), NULL, after, follow);
}

static void kernelspecs(struct cop_request *r)
{
        cop_sandbox_kernelspecs(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

const struct cop_route cop_api_sandboxes[] = {
        {"POST", "/api/sandboxes", COP_AUTH_TOKEN, COP_BODY_JSON, 0, create},
        {"GET", "/api/sandboxes", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"DELETE", "/api/sandboxes", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_all},
        {"GET", "/api/sandboxes/{sb}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"PATCH", "/api/sandboxes/{sb}", COP_AUTH_TOKEN, COP_BODY_JSON, 0, update},
        {"DELETE", "/api/sandboxes/{sb}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_one},
        {"GET", "/api/sandboxes/{sb}/logs", COP_AUTH_TOKEN, COP_BODY_NONE, 0, logs},
        {"GET", "/api/sandboxes/{sb}/kernelspecs", COP_AUTH_TOKEN, COP_BODY_NONE, 0, kernelspecs},
        {0},
};
