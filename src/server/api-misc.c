/* The daemon itself: health, info, doctor, tokens, events, the API's description. */
#include "base/parse.h"
#include "fields.h"
#include "http.h"
#include "request.h"
#include "stream.h"

#define TOKEN_LIFETIME_MAX (3650ULL * 24 * 3600 * USEC_PER_SEC)

static void health(struct cop_request *r)
{
        static const char text[] = "{\"status\":\"ok\",\"version\":\"" COPPICE_VERSION "\"}\n";

        cop_reply_text(r, 200, "application/json", text, sizeof(text) - 1);
}

static void openapi(struct cop_request *r)
{
        cop_reply_text(r, 200, "application/yaml", cop_openapi_yaml, cop_openapi_yaml_len);
}

static void info_done(json_t *result, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;

        if (!cop_request_done(r))
                return;
        if (err) {
                cop_reply_error(r, err);
                return;
        }
        /* Only the server knows where it listens. */
        const struct cop_server *s = r->server;
        json_object_set_new(
                result, "api",
                json_pack("{s:s?,s:s?}", "unix", s->socket_path, "tcp", *s->tcp_address ? s->tcp_address : NULL));
        json_object_set_new(result, "connections", json_integer(s->connections));
        cop_reply_json(r, 200, result);
}

static void info(struct cop_request *r)
{
        cop_engine_info(r->engine, cop_request_to_fn(r, info_done, NULL));
}

static void doctor(struct cop_request *r)
{
        cop_engine_doctor(r->engine, cop_request_to(r));
}

static void events(struct cop_request *r)
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
        cop_stream_record(r, COP_RECORD_EVENTS, NULL, NULL, after, follow);
}

static void token_create(struct cop_request *r)
{
        static const char *const fields[] = {"name", "expires_seconds", NULL};
        struct cop_error err = COP_ERROR_NULL;
        usec_t lifetime = USEC_INFINITY;
        const char *name = NULL;

        if (cop_json_check_keys(r->json, fields, &err) < 0 || cop_field_required(r->json, "name", &name, &err) < 0 ||
            cop_json_get_seconds(r->json, "expires_seconds", TOKEN_LIFETIME_MAX, &lifetime, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        if (!cop_name_valid(name) || lifetime == 0) {
                cop_error_set(&err, EINVAL, COP_ERR_bad_request,
                              lifetime ? "field \"name\": 1 to 63 letters, digits, \".\", \"_\" or \"-\" that begin "
                                         "with a letter or digit"
                                       : "field \"expires_seconds\": must be more than 0; leave it out for no end");
                cop_reply_error(r, &err);
                return;
        }
        r->success = 201;
        cop_token_create(r->engine, name, lifetime, cop_request_to(r), &r->op);
}

static void token_list(struct cop_request *r)
{
        cop_token_list(r->engine, cop_request_to(r));
}

static void token_remove(struct cop_request *r)
{
        cop_token_remove(r->engine, cop_request_param(r, 0), cop_request_to(r), &r->op);
}

const struct cop_route cop_api_misc[] = {
        {"GET", "/api/health", COP_AUTH_NONE, COP_BODY_NONE, 0, health},
        {"GET", "/api/openapi.yaml", COP_AUTH_NONE, COP_BODY_NONE, 0, openapi},
        {"GET", "/api/info", COP_AUTH_TOKEN, COP_BODY_NONE, 0, info},
        {"GET", "/api/doctor", COP_AUTH_TOKEN, COP_BODY_NONE, 0, doctor},
        {"GET", "/api/events", COP_AUTH_TOKEN, COP_BODY_NONE, 0, events},
        {"POST", "/api/tokens", COP_AUTH_LOCAL, COP_BODY_JSON, 0, token_create},
        {"GET", "/api/tokens", COP_AUTH_LOCAL, COP_BODY_NONE, 0, token_list},
        {"DELETE", "/api/tokens/{id}", COP_AUTH_LOCAL, COP_BODY_NONE, 0, token_remove},
        {0},
};
