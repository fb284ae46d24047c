#include "reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

void cop_reply_done(struct cop_reply *reply)
{
        for (size_t i = 0; i < reply->header_count; i++)
                free(reply->headers[i].value);
        if (!reply->body_static)
                free(reply->body);
        if (reply->source.close)
                reply->source.close(reply->source.source);
        *reply = (struct cop_reply){0};
}

void cop_reply_header(struct cop_request *r, const char *name, const char *format, ...)
{
        struct cop_reply *reply = &r->reply;
        char *value = NULL;
        va_list ap;

        if (reply->set || reply->header_count == COP_REPLY_HEADERS_MAX)
                return;
        va_start(ap, format);
        if (vasprintf(&value, format, ap) < 0)
                value = NULL;
        va_end(ap);
        if (!value)
                return;
        reply->headers[reply->header_count].name = name;
        reply->headers[reply->header_count++].value = value;
}

static bool begin(struct cop_request *r, unsigned status, const char *content_type)
{
        if (r->reply.set || r->gone)
                return false;
        r->reply.set = true;
        r->reply.status = status;
        r->reply.content_type = content_type;
        return true;
}

static void reply_static(struct cop_request *r, unsigned status, const char *content_type, const char *text, size_t n)
{
        if (!begin(r, status, content_type))
                return;
        r->reply.body = (char *)text;
        r->reply.body_len = n;
        r->reply.body_static = true;
        cop_request_wake(r);
}

static void no_memory(struct cop_request *r)
{
        static const char text[] =
                "{\"error\":true,\"code\":\"no_memory\",\"message\":\"out of memory\",\"retryable\":true}\n";

        reply_static(r, 503, "application/json", text, sizeof(text) - 1);
}

static void reply_owned(struct cop_request *r, unsigned status, const char *content_type, char *body, size_t n)
{
        if (!body) {
                no_memory(r);
                return;
        }
        if (!begin(r, status, content_type)) {
                free(body);
                return;
        }
        r->reply.body = body;
        r->reply.body_len = n;
        cop_request_wake(r);
}

void cop_reply_json(struct cop_request *r, unsigned status, json_t *json)
{
        if (!json) {
                reply_static(r, status, "application/json", "{}\n", 3);
                return;
        }
        char *body = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
        size_t n = body ? strlen(body) : 0;
        if (body)
                body[n++] = '\n'; /* over the NUL, which a reply does not need */
        reply_owned(r, status, "application/json", body, n);
}

json_t *cop_error_json(const struct cop_error *err)
{
        return json_pack("{s:b,s:s,s:o,s:b}", "error", 1, "code", cop_err_code_name(err->code), "message",
                         cop_json_foreign_string(err->message, strlen(err->message)), "retryable",
                         cop_err_code_retryable(err->code));
}

static char *native_error(const struct cop_error *err, size_t *ret_len)
{
        _cleanup_json_ json_t *json = cop_error_json(err);
        char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;

        if (!body)
                return NULL;
        *ret_len = strlen(body);
        body[(*ret_len)++] = '\n';
        return body;
}

const struct cop_dialect cop_dialect_native = {.name = "native", .format_error = native_error};

void cop_reply_error(struct cop_request *r, const struct cop_error *err)
{
        const struct cop_dialect *dialect = r->match.dialect ? r->match.dialect : &cop_dialect_native;
        int status = cop_err_code_status(err->code);
        size_t n = 0;

        if (r->reply.set || r->gone)
                return;
        char *body = dialect->format_error(err, &n);
        if (err->code == COP_ERR_unauthorized)
                cop_reply_header(r, "WWW-Authenticate", "Bearer realm=\"coppice\"");
        if (status == 429 || err->code == COP_ERR_unavailable)
                cop_reply_header(r, "Retry-After", "1");
        reply_owned(r, (unsigned)status, "application/json", body, n);
}

void cop_reply_text(struct cop_request *r, unsigned status, const char *content_type, const char *text, size_t n)
{
        reply_static(r, status, content_type, text, n);
}

void cop_reply_source(struct cop_request *r, unsigned status, const char *content_type, struct cop_body_source source,
                      uint64_t size)
{
        if (!begin(r, status, content_type)) {
                source.close(source.source);
                return;
        }
        r->reply.source = source;
        r->reply.size = size;
        cop_request_wake(r);
}
