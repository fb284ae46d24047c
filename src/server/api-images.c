/* /api/images: build, import, list, remove, golden states.  What takes minutes streams its progress with Accept NDJSON or SSE; a JSON
 * client waits.  A client that goes away stops it (cop_op_cancel). */
#include <string.h>

#include "fields.h"
#include "progress.h"

static void list(struct cop_request *r)
{
        cop_image_list(r->engine, cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_image_get(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

static void remove_one(struct cop_request *r)
{
        cop_image_remove(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

/* -- making ------------------------------------------------------------------------------------------------------- */

/* The destination of what takes long. */
static bool destination(struct cop_request *r, struct cop_op_to *ret)
{
        r->success = 201;
        return cop_progress_to(r, "image", ret);
}

static void build(struct cop_request *r)
{
        static const char *const fields[] = {"recipe", "name", "mirror", "force", NULL};
        const char *recipe = "code-interpreter", *name = NULL, *mirror = NULL;
        struct cop_error err = COP_ERROR_NULL;
        bool force = false;
        struct cop_op_to to;

        if (cop_json_check_keys(r->json, fields, &err) < 0 || cop_field_text(r->json, "recipe", &recipe, &err) < 0 ||
            cop_field_text(r->json, "name", &name, &err) < 0 || cop_field_check_name(name, &err) < 0 ||
            cop_field_text(r->json, "mirror", &mirror, &err) < 0 ||
            cop_json_get_bool(r->json, "force", &force, &err) < 0)
                cop_reply_error(r, &err);
        else if (destination(r, &to))
                cop_image_build(r->engine, recipe, name, mirror, force, to, &r->op);
}

static void import(struct cop_request *r)
{
        static const char *const fields[] = {"source", "name", NULL};
        const char *source = NULL, *name = NULL;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_op_to to;

        if (cop_json_check_keys(r->json, fields, &err) < 0 ||
            cop_field_required(r->json, "source", &source, &err) < 0 ||
            cop_field_required(r->json, "name", &name, &err) < 0 || cop_field_check_name(name, &err) < 0)
                cop_reply_error(r, &err);
        else if (destination(r, &to))
                cop_image_import(r->engine, source, name, to, &r->op);
}

static void warm(struct cop_request *r)
{
        static const char *const fields[] = {"code", "timeout", NULL};
        struct cop_warm_params p = {0};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_op_to to;
        int k;

        if ((k = cop_json_check_keys(r->json, fields, &err)) == 0 &&
            (k = cop_json_get_str(r->json, "code", &p.code, &err)) >= 0)
                k = cop_json_get_seconds(r->json, "timeout", COP_CELL_TIMEOUT_MAX, &p.timeout, &err);
        p.code_len = p.code ? json_string_length(json_object_get(r->json, "code")) : 0;
        if (k >= 0 && p.code && strlen(p.code) != p.code_len)
                k = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "field \"code\": contains a NUL character");
        if (k < 0)
                cop_reply_error(r, &err);
        else if (destination(r, &to))
                cop_image_warm(r->engine, cop_request_param(r, 0), &p, to, &r->op);
}

static void cool(struct cop_request *r)
{
        cop_image_cool(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

const struct cop_route cop_api_images[] = {
        {"GET", "/api/images", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"GET", "/api/images/{image}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"DELETE", "/api/images/{image}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_one},
        {"POST", "/api/images/build", COP_AUTH_TOKEN, COP_BODY_JSON, 0, build},
        {"POST", "/api/images/import", COP_AUTH_LOCAL, COP_BODY_JSON, 0, import},
        {"POST", "/api/images/{image}/warm", COP_AUTH_TOKEN, COP_BODY_JSON, 0, warm},
        {"DELETE", "/api/images/{image}/warm", COP_AUTH_TOKEN, COP_BODY_NONE, 0, cool},
        {0},
};
