#include "lib/test.h"

#include "server/accept.h"
#include "server/auth.h"
#include "server/body.h"
#include "server/uri.h"

#include "base/cleanup.h"
#include "base/json.h"

TEST(path_is_split_and_decoded)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_uri u;

        ASSERT_OK(cop_uri_parse("/api//sandboxes/a%20b%2Fc/?x=1&y=a+b%2B&z", &u, &err), &err);
        ASSERT_EQ(u.segment_count, 3);
        ASSERT_STR(u.segments[0], "api");
        ASSERT_STR(u.segments[2], "a b/c");
        ASSERT_EQ(u.query_count, 3);
        ASSERT_STR(u.query[1].value, "a b+");
        ASSERT_STR(u.query[2].value, "");
        cop_uri_done(&u);
        ASSERT_OK(cop_uri_parse("http://localhost:8000/api/health", &u, &err), &err);
        ASSERT_EQ(u.segment_count, 2);
        cop_uri_done(&u);
        ASSERT_OK(cop_uri_parse("/", &u, &err), &err);
        ASSERT_EQ(u.segment_count, 0);
        cop_uri_done(&u);
}

TEST(bad_targets_are_refused)
{
        static const char *const bad[] = {"/a%",         "/a%4", "/a%zz", "/a%00b", "/a%ff",
                                          "/a?b=%c0%80", "*",    "a/b",   "/a?x=%0"};
        struct cop_error err;
        struct cop_uri u;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                ASSERT_CODE(cop_uri_parse(bad[i], &u, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_uri_parse("/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", &u, &err), &err, COP_ERR_route_not_found);
        ASSERT_CODE(cop_uri_parse("/?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q", &u, &err), &err, COP_ERR_bad_request);
}

TEST(query_parameters_are_typed)
{
        static const char *const names[] = {"n", "b", "m", "s", "empty", NULL};
        struct cop_error err = COP_ERROR_NULL;
        const char *s = "old";
        unsigned mode = 0;
        struct cop_uri u;
        uint64_t n = 7;
        bool b = false;

        ASSERT_OK(cop_uri_parse("/?n=42&b&m=0755&s=x&empty=", &u, &err), &err);
        ASSERT_OK(cop_query_check(&u, names, NULL, &err), &err);
        ASSERT_EQ(cop_query_u64(&u, "n", 0, 100, &n, &err), 1);
        ASSERT_EQ(n, 42);
        ASSERT_EQ(cop_query_u64(&u, "empty", 0, 100, &n, &err), 0);
        ASSERT_EQ(n, 42);
        ASSERT_CODE(cop_query_u64(&u, "n", 0, 41, &n, &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "\"n\"");
        ASSERT_CODE(cop_query_u64(&u, "s", 0, 41, &n, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(cop_query_bool(&u, "b", &b, &err), 1);
        ASSERT(b);
        ASSERT_CODE(cop_query_bool(&u, "n", &b, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(cop_query_mode(&u, "m", &mode, &err), 1);
        ASSERT_EQ(mode, 0755);
        ASSERT_CODE(cop_query_mode(&u, "s", &mode, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(cop_query_str(&u, "empty", &s, &err), 0);
        ASSERT_STR(s, "old");
        cop_uri_done(&u);
        ASSERT_OK(cop_uri_parse("/?recursve=1", &u, &err), &err);
        ASSERT_CODE(cop_query_check(&u, names, NULL, &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "recursve");
        cop_uri_done(&u);
        ASSERT_OK(cop_uri_parse("/?n=1&n=2", &u, &err), &err);
        ASSERT_CODE(cop_query_check(&u, names, NULL, &err), &err, COP_ERR_bad_request);
        ASSERT_OK(cop_query_check(&u, names, "n", &err), &err);
        cop_uri_done(&u);
}

TEST(accept_chooses_by_quality_and_order)
{
        static const struct {
                const char *header;
                enum cop_accept fallback, wanted;
        } cases[] = {
                {NULL, COP_ACCEPT_JSON, COP_ACCEPT_JSON},
                {"*/*", COP_ACCEPT_NDJSON, COP_ACCEPT_NDJSON},
                {"application/json", COP_ACCEPT_NDJSON, COP_ACCEPT_JSON},
                {"text/event-stream", COP_ACCEPT_JSON, COP_ACCEPT_SSE},
                {"Text/Event-Stream; charset=utf-8", COP_ACCEPT_JSON, COP_ACCEPT_SSE},
                {"application/json, text/event-stream", COP_ACCEPT_JSON, COP_ACCEPT_JSON},
                {"application/json;q=0.5, text/event-stream", COP_ACCEPT_JSON, COP_ACCEPT_SSE},
                {"application/json;q=0.5,application/x-ndjson;q=0.75 , text/event-stream;q=0.7", COP_ACCEPT_JSON,
                 COP_ACCEPT_NDJSON},
                {"text/event-stream;q=0", COP_ACCEPT_JSON, COP_ACCEPT_JSON},
                {"text/html,application/xhtml+xml,*/*;q=0.8", COP_ACCEPT_JSON, COP_ACCEPT_JSON},
                {"application/jsonl", COP_ACCEPT_JSON, COP_ACCEPT_NDJSON},
                {",,;q=,", COP_ACCEPT_JSON, COP_ACCEPT_JSON},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (cop_accept_parse(cases[i].header, cases[i].fallback) != cases[i].wanted)
                        FAIL("Accept: %s", cases[i].header ? cases[i].header : "(none)");
}

TEST(ranges)
{
        static const struct {
                const char *header;
                uint64_t size;
                int wanted;
                uint64_t first, length;
        } cases[] = {
                {NULL, 10, 0, 0, 0},
                {"bytes=0-3", 10, 1, 0, 4},
                {"bytes=4-", 10, 1, 4, 6},
                {"bytes=-3", 10, 1, 7, 3},
                {"bytes=-30", 10, 1, 0, 10},
                {"bytes=9-100", 10, 1, 9, 1},
                {"bytes=10-", 10, -ERANGE, 0, 0},
                {"bytes=-0", 10, -ERANGE, 0, 0},
                {"bytes=0-", 0, -ERANGE, 0, 0},
                {"bytes=5-2", 10, 0, 0, 0},
                {"bytes=0-1,3-4", 10, 0, 0, 0},
                {"lines=1-2", 10, 0, 0, 0},
                {"bytes=x-2", 10, 0, 0, 0},
                {"bytes=-", 10, 0, 0, 0},
                {"bytes=99999999999999999999-", 10, 0, 0, 0},
                {"bytes=0-18446744073709551615", 10, 1, 0, 10},
        };
        struct cop_error err;

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                struct cop_range range = {0, 0};
                int r = cop_range_parse(cases[i].header, cases[i].size, &range, &err);
                if (r != cases[i].wanted || range.first != cases[i].first || range.length != cases[i].length)
                        FAIL("Range: %s gives %d %llu+%llu", cases[i].header, r, (unsigned long long)range.first,
                             (unsigned long long)range.length);
                if (r < 0)
                        ASSERT_EQ(err.code, COP_ERR_range_invalid);
        }
}

TEST(hosts)
{
        static const char *const allowed[] = {"coppice.example", NULL};
        static const char *const good[] = {
                "localhost", "localhost:8000",       "LOCALHOST",        "127.0.0.1:1",          "[::1]:8000",
                "[::1]",     "8000-sb.localhost:80", "192.168.1.5:8000", "coppice.example:8000", "localhost."};
        static const char *const bad[] = {"",
                                          ":80",
                                          "evil.example",
                                          "localhost.evil.example",
                                          "127.0.0.1.evil.example",
                                          "[::1",
                                          "xlocalhost",
                                          ".localhost.example",
                                          "[evil]"};

        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (!cop_host_allowed(good[i], allowed))
                        FAIL("%s was refused", good[i]);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_host_allowed(bad[i], allowed))
                        FAIL("%s was allowed", bad[i]);
}

static int body(const char *text, size_t n, struct cop_error *err)
{
        _cleanup_json_ json_t *json = NULL;

        return cop_body_json(text, n, &json, err);
}
#define BODY(text, err) body(text, sizeof(text) - 1, err)

TEST(json_bodies)
{
        struct cop_error err;

        ASSERT_OK(BODY("", &err), &err);
        ASSERT_OK(BODY(" \r\n\t", &err), &err);
        ASSERT_OK(BODY("{\"a\":1}", &err), &err);
        ASSERT_CODE(BODY("[1]", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("null", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("{\"a\":1", &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "line 1");
        ASSERT_CODE(BODY("{\"a\":1,\"a\":2}", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("{\"a\":NaN}", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("{\"code\":\"a\\u0000b\"}", &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "\"code\"");
        ASSERT_CONTAINS(err.message, "NUL");
        ASSERT_CODE(BODY("{\"env\":{\"A\":[\"x\",\"a\\u0000b\"]}}", &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "\"env\"");
        ASSERT_CODE(BODY("{\"code\":\"\\ud800\"}", &err), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "surrogate");
        ASSERT_CODE(BODY("{\"code\":\"\xff\"}", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("\0", &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(BODY("{}x", &err), &err, COP_ERR_bad_request);
}

TEST(deep_json_is_refused)
{
        static char text[300000];
        struct cop_error err;

        memcpy(text, "{\"a\":", 5);
        memset(text + 5, '[', sizeof(text) - 5);
        ASSERT_CODE(body(text, sizeof(text), &err), &err, COP_ERR_bad_request);
}
