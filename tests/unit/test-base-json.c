#include "lib/test.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"

static json_t *parse(const char *text)
{
        struct cop_error err = COP_ERROR_NULL;
        json_t *j = NULL;

        ASSERT_OK(cop_json_parse(text, strlen(text), false, &j, &err), &err);
        return j;
}

TEST(parses_strictly)
{
        static const char *const bad[] = {"",        "{",           "{} x",     "{\"a\":1,\"a\":2}", "[1,]", "nul",
                                          "{'a':1}", "\"\\u0000\"", "\"\xFF\"", "\"\\ud800\"",       "NaN",  "1e999"};
        struct cop_error err = COP_ERROR_NULL;
        json_t *j = NULL;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                if (cop_json_parse(bad[i], strlen(bad[i]), false, &j, &err) >= 0)
                        FAIL("entry %zu was taken: %s", i, bad[i]);
                ASSERT_EQ(err.code, COP_ERR_bad_request);
                ASSERT_CONTAINS(err.message, "malformed JSON at line");
                ASSERT(j == NULL);
        }
}

TEST(nul_only_when_allowed)
{
        _cleanup_json_ json_t *j = NULL;
        const char *text = "\"a\\u0000b\"";

        ASSERT_ERRNO(cop_json_parse(text, strlen(text), false, &j, NULL), EINVAL);
        ASSERT_OK(cop_json_parse(text, strlen(text), true, &j, NULL), NULL);
        ASSERT_EQ(json_string_length(j), 3);
}

TEST(depth_is_bounded)
{
        static char text[200001];
        json_t *j = NULL;

        memset(text, '[', sizeof(text) - 1);
        ASSERT_ERRNO(cop_json_parse(text, sizeof(text) - 1, false, &j, NULL), EINVAL);
}

TEST(missing_and_null_leave_the_result_alone)
{
        _cleanup_json_ json_t *j = parse("{\"n\":null}");
        const char *keys[] = {"n", "absent"};

        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                const char *s = "kept";
                bool b = true;
                int64_t n = 5;
                usec_t u = 6;
                json_t *a = NULL;
                ASSERT_EQ(cop_json_get_str(j, keys[i], &s, NULL), 0);
                ASSERT_EQ(cop_json_get_bool(j, keys[i], &b, NULL), 0);
                ASSERT_EQ(cop_json_get_i64(j, keys[i], 0, 9, &n, NULL), 0);
                ASSERT_EQ(cop_json_get_seconds(j, keys[i], 9, &u, NULL), 0);
                ASSERT_EQ(cop_json_get_array(j, keys[i], &a, NULL), 0);
                ASSERT_EQ(cop_json_get_object(j, keys[i], &a, NULL), 0);
                ASSERT_EQ(cop_json_get_strings(j, keys[i], 3, &a, NULL), 0);
                ASSERT_STR(s, "kept");
                ASSERT(b && n == 5 && u == 6 && a == NULL);
        }
}

TEST(wrong_types_name_the_field)
{
        _cleanup_json_ json_t *j = parse("{\"x\":[1],\"y\":\"s\",\"z\":1.5,\"t\":true}");
        struct cop_error err = COP_ERROR_NULL;
        const char *s = NULL;
        bool b;
        int64_t n;
        usec_t u;
        json_t *a = NULL;

        ASSERT_CODE(cop_json_get_str(j, "x", &s, &err), &err, COP_ERR_bad_request);
        ASSERT_STR(err.message, "field \"x\": expected a string");
        ASSERT_CODE(cop_json_get_bool(j, "y", &b, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_i64(j, "z", 0, 9, &n, &err), &err, COP_ERR_bad_request);
        ASSERT_STR(err.message, "field \"z\": expected a whole number from 0 to 9");
        ASSERT_CODE(cop_json_get_i64(j, "t", 0, 9, &n, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_seconds(j, "y", 9, &u, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_array(j, "y", &a, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_object(j, "x", &a, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_strings(j, "x", 9, &a, &err), &err, COP_ERR_bad_request);
        ASSERT(s == NULL && a == NULL);
}

TEST(whole_numbers_within_their_range)
{
        _cleanup_json_ json_t *j = parse("{\"a\":-1,\"b\":10,\"c\":9223372036854775807}");
        int64_t n = 0;

        ASSERT_ERRNO(cop_json_get_i64(j, "a", 0, 9, &n, NULL), EINVAL);
        ASSERT_ERRNO(cop_json_get_i64(j, "b", 0, 9, &n, NULL), EINVAL);
        ASSERT_EQ(cop_json_get_i64(j, "b", 0, 10, &n, NULL), 1);
        ASSERT_EQ(n, 10);
        ASSERT_EQ(cop_json_get_i64(j, "c", 0, INT64_MAX, &n, NULL), 1);
        ASSERT_EQ(n, INT64_MAX);
}

TEST(seconds)
{
        _cleanup_json_ json_t *j =
                parse("{\"a\":1.5,\"b\":30,\"c\":-1,\"d\":86401,\"e\":1e300,\"f\":0.0000005,\"g\":1e13}");
        usec_t u = 0;

        ASSERT_EQ(cop_json_get_seconds(j, "a", 86400 * USEC_PER_SEC, &u, NULL), 1);
        ASSERT_EQ(u, 1500000);
        ASSERT_EQ(cop_json_get_seconds(j, "b", 86400 * USEC_PER_SEC, &u, NULL), 1);
        ASSERT_EQ(u, 30000000);
        ASSERT_ERRNO(cop_json_get_seconds(j, "c", 86400 * USEC_PER_SEC, &u, NULL), EINVAL);
        ASSERT_ERRNO(cop_json_get_seconds(j, "d", 86400 * USEC_PER_SEC, &u, NULL), EINVAL);
        ASSERT_ERRNO(cop_json_get_seconds(j, "e", USEC_INFINITY, &u, NULL), EINVAL);
        ASSERT_ERRNO(cop_json_get_seconds(j, "g", USEC_INFINITY, &u, NULL), EINVAL);
        ASSERT_EQ(cop_json_get_seconds(j, "f", USEC_INFINITY, &u, NULL), 1);
        ASSERT_LE(u, 1);
}

TEST(string_maps)
{
        _cleanup_json_ json_t *j = parse("{\"e\":{\"A\":\"1\",\"B\":\"2\"},\"bad\":{\"A\":1},\"none\":{}}");
        struct cop_error err = COP_ERROR_NULL;
        json_t *map = NULL;

        ASSERT_EQ(cop_json_get_strings(j, "e", 2, &map, &err), 1);
        ASSERT_EQ(json_object_size(map), 2);
        ASSERT_CODE(cop_json_get_strings(j, "e", 1, &map, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_json_get_strings(j, "bad", 9, &map, &err), &err, COP_ERR_bad_request);
        ASSERT_STR(err.message, "field \"bad.A\": expected a string");
        ASSERT_EQ(cop_json_get_strings(j, "none", 0, &map, &err), 1);
}

TEST(unknown_fields_are_refused_by_name)
{
        static const char *const allowed[] = {"timeout", "code", NULL};
        _cleanup_json_ json_t *good = parse("{\"timeout\":1}"), *bad = parse("{\"code\":1,\"tiemout\":1}"),
                              *array = parse("[]");
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_json_check_keys(good, allowed, &err), &err);
        ASSERT_CODE(cop_json_check_keys(bad, allowed, &err), &err, COP_ERR_bad_request);
        ASSERT_STR(err.message, "unknown field \"tiemout\"");
        ASSERT_CODE(cop_json_check_keys(array, allowed, &err), &err, COP_ERR_bad_request);
}

TEST(a_long_foreign_key_gives_a_valid_message)
{
        static const char *const allowed[] = {NULL};
        _cleanup_json_ json_t *j = json_object();
        struct cop_error err = COP_ERROR_NULL;
        char key[202];

        key[0] = 'x';
        for (size_t i = 1; i + 2 < sizeof(key); i += 2)
                memcpy(key + i, "\xC3\xA9", 3);
        ASSERT_OK(json_object_set_new(j, key, json_null()), NULL);
        ASSERT_CODE(cop_json_check_keys(j, allowed, &err), &err, COP_ERR_bad_request);
        _cleanup_json_ json_t *message = json_string(err.message); /* fails on invalid UTF-8 */
        ASSERT(message);
}

TEST(foreign_strings_become_valid)
{
        _cleanup_json_ json_t *clean = cop_json_foreign_string("ok", 2),
                              *repaired = cop_json_foreign_string("a\xFF\0z", 4),
                              *empty = cop_json_foreign_string("", 0);

        ASSERT_STR(json_string_value(clean), "ok");
        ASSERT_EQ(json_string_length(repaired), 6);
        ASSERT_MEM(json_string_value(repaired), "a\xEF\xBF\xBD\0z", 7);
        ASSERT_EQ(json_string_length(empty), 0);
}
