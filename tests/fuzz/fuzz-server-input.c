/* What a client sends, up to the handlers: the first byte chooses the parser.  Beyond not crashing: what is accepted keeps its
 * promises. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/utf8.h"
#include "server/accept.h"
#include "server/auth.h"
#include "server/body.h"
#include "server/fields.h"
#include "server/sse.h"
#include "server/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_body(const char *text, size_t n)
{
        _cleanup_json_ json_t *json = NULL;
        struct cop_error err;
        uint64_t size;
        unsigned number;
        json_t *env;
        size_t max;

        if (cop_body_json(text, n, &json, &err) < 0) {
                if (err.code != COP_ERR_bad_request && err.code != COP_ERR_no_memory)
                        abort();
                return;
        }
        if (!json_is_object(json))
                abort();
        if (cop_field_size(json, "memory", 16, &size, &err) > 0 && size < 16)
                abort();
        (void)cop_field_cpus(json, "cpus", &number, &err);
        (void)cop_field_env(json, "env", &env, &err);
        (void)cop_field_mode(json, "mode", &number, &err);
        (void)cop_field_output_max(json, &max, &err);
}

static void fuzz_uri(const char *text)
{
        struct cop_error err;
        struct cop_uri u;

        if (cop_uri_parse(text, &u, &err) < 0)
                return;
        for (size_t i = 0; i < u.segment_count; i++)
                if (!*u.segments[i] || !cop_utf8_valid(u.segments[i], strlen(u.segments[i])))
                        abort();
        for (size_t i = 0; i < u.query_count; i++)
                if (!cop_utf8_valid(u.query[i].value, strlen(u.query[i].value)))
                        abort();
        cop_uri_done(&u);
}

static void fuzz_range(const char *text, size_t n)
{
        uint64_t size = n * 7;
        struct cop_range range;
        struct cop_error err;

        if (cop_range_parse(text, size, &range, &err) > 0 &&
            (range.length == 0 || range.first >= size || range.length > size - range.first))
                abort();
}

/* Any cutting of the input gives the same output. */
static void fuzz_sse(const char *text, size_t n)
{
        struct cop_buf whole = COP_BUF(1u << 24), pieces = COP_BUF(1u << 24);
        struct cop_sse a = {0}, b = {0};
        char out[4096];
        size_t taken;

        for (size_t at = 0; at < n; at += taken)
                cop_buf_add(&whole, out, cop_sse_encode(&a, text + at, n - at, out, sizeof(out), &taken));
        for (size_t at = 0; at < n; at += taken) {
                size_t part = 1 + (unsigned char)text[at] % 50;
                part = part < n - at ? part : n - at;
                cop_buf_add(&pieces, out, cop_sse_encode(&b, text + at, part, out, 64, &taken));
        }
        if (whole.len != pieces.len || (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))
                abort();
        cop_buf_done(&whole);
        cop_buf_done(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 1)
                return 0;
        char *text = strndup((const char *)data + 1, size - 1); /* as a header: up to the first NUL */
        switch (data[0] % 6) {
        case 0:
                fuzz_body((const char *)data + 1, size - 1);
                break;
        case 1:
                fuzz_uri(text);
                break;
        case 2:
                (void)cop_accept_parse(text, COP_ACCEPT_JSON);
                break;
        case 3:
                fuzz_range(text, size);
                break;
        case 4:
                (void)cop_host_allowed(text, NULL);
                break;
        default:
                fuzz_sse((const char *)data + 1, size - 1);
        }
        free(text);
        return 0;
}
