/* Comparing states, and taking files and variables from one into a sandbox. */
#include "fields.h"
#include "request.h"

static int diff_params(struct cop_request *r, struct cop_diff_params *p, struct cop_error *err)
{
        static const char *const names[] = {"a", "b", "context", "files", "variables", "text", NULL};
        int k;

        p->files = p->variables = true;
        if ((k = cop_query_check(&r->uri, names, NULL, err)) < 0 || (k = cop_query_str(&r->uri, "a", &p->a, err)) < 0 ||
            (k = cop_query_str(&r->uri, "b", &p->b, err)) < 0 ||
            (k = cop_query_str(&r->uri, "context", &p->context, err)) < 0 ||
            (k = cop_query_bool(&r->uri, "files", &p->files, err)) < 0 ||
            (k = cop_query_bool(&r->uri, "variables", &p->variables, err)) < 0 ||
            (k = cop_query_bool(&r->uri, "text", &p->text, err)) < 0)
                return k;
        if (!p->a || !p->b)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "query parameter \"%s\" is missing",
                                     p->a ? "b" : "a");
        if (!p->files && !p->variables)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "nothing to compare: files and variables are both off");
        return 0;
}

static void diff(struct cop_request *r)
{
        struct cop_diff_params p = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (diff_params(r, &p, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_diff(r->engine, &p, cop_request_to(r), &r->op);
}

static void take(struct cop_request *r)
{
        static const char *const fields[] = {"from", "files", "variables", "context", NULL};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_take_params p = {0};

        if (cop_json_check_keys(r->json, fields, &err) < 0 || cop_field_required(r->json, "from", &p.from, &err) < 0 ||
            cop_field_text(r->json, "context", &p.context, &err) < 0 ||
            cop_json_get_array(r->json, "files", &p.files, &err) < 0 ||
            cop_json_get_array(r->json, "variables", &p.variables, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_take(r->engine, cop_request_param(r, 0), &p, cop_request_to(r), &r->op);
}

const struct cop_route cop_api_diff[] = {
        {"GET", "/api/diff", COP_AUTH_TOKEN, COP_BODY_NONE, 0, diff},
        {"POST", "/api/sandboxes/{sb}/take", COP_AUTH_TOKEN, COP_BODY_JSON, 0, take},
        {0},
};
