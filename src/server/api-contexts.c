/* /api/sandboxes/{sb}/contexts: one Jupyter kernel each. */
#include "base/parse.h"
#include "fields.h"
#include "request.h"

static int parse_params(json_t *body, struct cop_context_params *p, struct cop_error *err)
{
        static const char *const fields[] = {"language", "kernelspec", "name", "cwd", "env", NULL};
        int r;

        if ((r = cop_json_check_keys(body, fields, err)) < 0 ||
            (r = cop_field_text(body, "language", &p->language, err)) < 0 ||
            (r = cop_field_text(body, "kernelspec", &p->kernelspec, err)) < 0 ||
            (r = cop_field_text(body, "name", &p->name, err)) < 0 ||
            (r = cop_field_text(body, "cwd", &p->cwd, err)) < 0 || (r = cop_field_env(body, "env", &p->env, err)) < 0)
                return r;
        if (p->language && p->kernelspec)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "give \"language\" or \"kernelspec\", not both");
        if (p->name && !cop_name_valid(p->name))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"name\": 1 to 63 letters, digits, \".\", \"_\" or \"-\" that begin with a "
                                     "letter or digit");
        return 0;
}

static void create(struct cop_request *r)
{
        struct cop_context_params p = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (parse_params(r->json, &p, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        r->success = 201;
        cop_context_create(r->engine, cop_request_param(r, 0), &p, cop_request_to(r), &r->op);
}

static void list(struct cop_request *r)
{
        cop_context_list(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_context_get(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r));
}

static void remove_one(struct cop_request *r)
{
        cop_context_remove(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r), &r->op);
}

static bool takes_no_fields(struct cop_request *r)
{
        static const char *const none[] = {NULL};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_json_check_keys(r->json, none, &err) == 0)
                return true;
        cop_reply_error(r, &err);
        return false;
}

static void restart(struct cop_request *r)
{
        if (takes_no_fields(r))
                cop_context_restart(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r),
                                    &r->op);
}

static void interrupt(struct cop_request *r)
{
        if (takes_no_fields(r))
                cop_context_interrupt(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r),
                                      &r->op);
}

const struct cop_route cop_api_contexts[] = {
        {"GET", "/api/sandboxes/{sb}/contexts", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"POST", "/api/sandboxes/{sb}/contexts", COP_AUTH_TOKEN, COP_BODY_JSON, 0, create},
        {"GET", "/api/sandboxes/{sb}/contexts/{ctx}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"DELETE", "/api/sandboxes/{sb}/contexts/{ctx}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_one},
        {"POST", "/api/sandboxes/{sb}/contexts/{ctx}/restart", COP_AUTH_TOKEN, COP_BODY_JSON, 0, restart},
        {"POST", "/api/sandboxes/{sb}/contexts/{ctx}/interrupt", COP_AUTH_TOKEN, COP_BODY_JSON, 0, interrupt},
        {0},
};
