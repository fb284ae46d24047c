/* /api/sandboxes/{sb}/cells: running code.
 *
 * A JSON client waits for the whole Cell.  A streaming client has the cell queued first, so that every refusal is still a plain
 * error with its status, and then follows the cell's record from the beginning.
 */
#include "fields.h"
#include "request.h"
#include "stream.h"

/* JSON needs up to twice the bytes of text that is not ASCII (\uXXXX for three bytes of UTF-8) or full of quotes. */
#define CELL_BODY_MAX (2 * (size_t)COP_CELL_CODE_MAX + 65536)
#define TIMEOUT_MIN (100 * USEC_PER_MSEC)

static int parse_flags(json_t *body, struct cop_cell_params *p, struct cop_error *err)
{
        static const char *const stdin_words[] = {"none", "open", NULL}, *const gone_words[] = {"continue", "interrupt",
                                                                                                NULL};
        bool history = true;
        unsigned input = 0, gone = 0;
        int r;

        if ((r = cop_field_word(body, "stdin", stdin_words, &input, err)) < 0 ||
            (r = cop_field_word(body, "on_disconnect", gone_words, &gone, err)) < 0 ||
            (r = cop_json_get_bool(body, "silent", &p->silent, err)) < 0 ||
            (r = cop_json_get_bool(body, "store_history", &history, err)) < 0 ||
            (r = cop_json_get_bool(body, "pure", &p->pure, err)) < 0 ||
            (r = cop_json_get_bool(body, "detach", &p->detach, err)) < 0)
                return r;
        p->stdin_open = input == 1;
        p->interrupt_on_disconnect = gone == 1;
        p->no_history = !history;
        return 0;
}

static int parse_params(json_t *body, struct cop_cell_params *p, struct cop_error *err)
{
        static const char *const fields[] = {"code",   "context",       "timeout",    "stdin",  "on_disconnect",
                                             "silent", "store_history", "output_max", "detach", "pure",
                                             NULL};
        int r;

        if ((r = cop_json_check_keys(body, fields, err)) < 0 || (r = cop_json_get_str(body, "code", &p->code, err)) < 0)
                return r;
        if (r == 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"code\" is missing");
        p->code_len = json_string_length(json_object_get(body, "code"));
        if (p->code_len > COP_CELL_CODE_MAX)
                return cop_error_set(err, EMSGSIZE, COP_ERR_payload_too_large,
                                     "field \"code\": %zu bytes are over the limit of %u MiB", p->code_len,
                                     COP_CELL_CODE_MAX >> 20);
        if ((r = cop_field_text(body, "context", &p->context, err)) < 0)
                return r;
        r = cop_json_get_seconds(body, "timeout", COP_CELL_TIMEOUT_MAX, &p->timeout, err);
        if (r < 0)
                return r;
        if (r > 0 && p->timeout < TIMEOUT_MIN)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"timeout\": expected a number of seconds from 0.1 to 86400");
        if ((r = cop_field_output_max(body, &p->output_max, err)) < 0)
                return r;
        return parse_flags(body, p, err);
}

/* -- streaming ---------------------------------------------------------------------------------------------------- */

static void stream_gone(struct cop_request *r)
{
        if (r->state)
                cop_cell_disconnected(r->engine, cop_request_param(r, 0), r->state);
}

static void queued(json_t *result, const struct cop_error *err, void *userdata)
{
        cop_stream_begun(userdata, COP_RECORD_CELL, result, err);
}

static void run(struct cop_request *r)
{
        enum cop_accept format = cop_accept_parse(cop_request_header(r, "Accept"), COP_ACCEPT_JSON);
        struct cop_cell_params p = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (parse_params(r->json, &p, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        if (format == COP_ACCEPT_JSON || p.detach) {
                cop_cell_run(r->engine, cop_request_param(r, 0), &p, cop_request_to(r), &r->op);
                return;
        }
        p.stream = true;
        r->on_gone = stream_gone;
        cop_cell_run(r->engine, cop_request_param(r, 0), &p, cop_request_to_fn(r, queued, NULL), &r->op);
}

static void stream(struct cop_request *r)
{
        static const char *const names[] = {"after", NULL};
        struct cop_error err = COP_ERROR_NULL;
        uint64_t after = 0;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 ||
            cop_query_u64(&r->uri, "after", 0, INT64_MAX, &after, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        cop_stream_record(r, COP_RECORD_CELL, cop_request_param(r, 0), cop_request_param(r, 1), after, true);
}

/* -- notebook ------------------------------------------------------------------------------------------------------ */

static ssize_t notebook_read(void *source, char *buf, size_t n)
{
        return cop_notebook_read(source, buf, n);
}

static void notebook_close(void *source)
{
        cop_notebook_close(source);
}

static void notebook_more(void *userdata)
{
        cop_request_wake(userdata);
}

static void notebook(struct cop_request *r)
{
        static const char *const names[] = {"context", "undone", NULL};
        struct cop_body_source source = {.read = notebook_read, .close = notebook_close};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_notebook *n = NULL;
        const char *context = NULL;
        bool undone = false;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || cop_query_str(&r->uri, "context", &context, &err) < 0 ||
            cop_query_bool(&r->uri, "undone", &undone, &err) < 0 ||
            cop_notebook_open(r->engine, cop_request_param(r, 0), context, undone, notebook_more, r, &n, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        source.source = n;
        cop_reply_header(r, "Cache-Control", "no-store");
        cop_reply_source(r, 200, "application/x-ipynb+json", source, UINT64_MAX);
}

/* -- the rest ----------------------------------------------------------------------------------------------------- */

static int parse_filter(struct cop_request *r, json_t *filter, struct cop_error *err)
{
        static const char *const names[] = {"context", "limit", "before", "outputs", NULL};
        const char *context = NULL, *before = NULL;
        uint64_t limit = 0;
        bool outputs = false;
        int k;

        if ((k = cop_query_check(&r->uri, names, NULL, err)) < 0 ||
            (k = cop_query_str(&r->uri, "context", &context, err)) < 0 ||
            (k = cop_query_str(&r->uri, "before", &before, err)) < 0 ||
            (k = cop_query_u64(&r->uri, "limit", 1, 10000, &limit, err)) < 0 ||
            (k = cop_query_bool(&r->uri, "outputs", &outputs, err)) < 0)
                return k;
        if (context)
                json_object_set_new(filter, "context", json_string(context));
        if (before)
                json_object_set_new(filter, "before", json_string(before));
        if (limit)
                json_object_set_new(filter, "limit", json_integer((json_int_t)limit));
        json_object_set_new(filter, "outputs", json_boolean(outputs));
        return 0;
}

static void list(struct cop_request *r)
{
        _cleanup_json_ json_t *filter = json_object();
        struct cop_error err = COP_ERROR_NULL;

        if (parse_filter(r, filter, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_cell_list(r->engine, cop_request_param(r, 0), filter, cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_cell_get(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r));
}

static void interrupt(struct cop_request *r)
{
        static const char *const none[] = {NULL};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_json_check_keys(r->json, none, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_cell_interrupt(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r));
}

static void input(struct cop_request *r)
{
        static const char *const fields[] = {"value", NULL};
        struct cop_error err = COP_ERROR_NULL;
        const char *value = NULL;
        int k = cop_json_check_keys(r->json, fields, &err);

        if (k == 0)
                k = cop_json_get_str(r->json, "value", &value, &err);
        if (k == 0)
                k = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "field \"value\" is missing");
        if (k < 0)
                cop_reply_error(r, &err);
        else
                cop_cell_input(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), value, cop_request_to(r));
}

const struct cop_route cop_api_cells[] = {
        {"POST", "/api/sandboxes/{sb}/cells", COP_AUTH_TOKEN, COP_BODY_JSON, CELL_BODY_MAX, run},
        {"GET", "/api/sandboxes/{sb}/cells", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"GET", "/api/sandboxes/{sb}/notebook", COP_AUTH_TOKEN, COP_BODY_NONE, 0, notebook},
        {"GET", "/api/sandboxes/{sb}/cells/{cell}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"GET", "/api/sandboxes/{sb}/cells/{cell}/stream", COP_AUTH_TOKEN, COP_BODY_NONE, 0, stream},
        {"POST", "/api/sandboxes/{sb}/cells/{cell}/interrupt", COP_AUTH_TOKEN, COP_BODY_JSON, 0, interrupt},
        {"POST", "/api/sandboxes/{sb}/cells/{cell}/input", COP_AUTH_TOKEN, COP_BODY_JSON, 0, input},
        {0},
};
