#include "jupyter/decode.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/utf8.h"
#include "jupyter/output.h"
#include "lib/test.h"

/* text is decoded and written again; NULL when it is refused. */
static char *decoded_n(const char *text, size_t n, bool *ret_repaired)
{
        json_t *value;

        if (cop_decode_json(text, n, &value, ret_repaired, NULL) < 0)
                return NULL;
        char *again = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        json_decref(value);
        return again;
}

static void check(const char *text, const char *expected, bool repaired)
{
        bool was;
        _cleanup_free_ char *again = decoded_n(text, strlen(text), &was);

        ASSERT_STR(again, expected);
        ASSERT_EQ(was, repaired);
}

TEST(strict_json_passes_unchanged)
{
        check("{\"a\":[1,2.5,\"x\",null,true]}", "{\"a\":[1,2.5,\"x\",null,true]}", false);
        check("\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"", false);
        check("7", "7", false);
}

TEST(not_a_number_becomes_null)
{
        check("{\"a\":NaN,\"b\":-Infinity,\"c\":[Infinity, 1]}", "{\"a\":null,\"b\":null,\"c\":[null,1]}", true);
        check("{\"a\":\"NaN\",\"b\":NaN}", "{\"a\":\"NaN\",\"b\":null}", true);
        check("{\"a\":1e999,\"b\":-1e999}", "{\"a\":null,\"b\":null}", true);
}

TEST(numbers_beyond_any_type_stay_numbers)
{
        check("{\"a\":1000000000000000000000000000000,\"b\":5}", "{\"a\":1e30,\"b\":5}", true);
        check("[-123456789012345678,NaN]", "[-123456789012345678,null]", true);
        check("[1.5,-2,0,3e2,NaN]", "[1.5,-2,0,300.0,null]", true);

        char *huge = malloc(2000);
        memset(huge, '9', 1999);
        huge[0] = '[';
        huge[1998] = ']';
        huge[1999] = '\0';
        check(huge, "[null]", true);
        free(huge);
}

TEST(ill_formed_utf8_becomes_replacement)
{
        check("{\"t\":\"a\x80"
              "b\"}",
              "{\"t\":\"a\xEF\xBF\xBD"
              "b\"}",
              true);
        check("{\"t\":\"\xED\xA0\x80\"}", "{\"t\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}", true);
        check("{\"t\":\"\xC3\"}", "{\"t\":\"\xEF\xBF\xBD\"}", true);
}

TEST(lone_surrogate_escapes_become_replacement)
{
        check("\"\\ud800\"", "\"\xEF\xBF\xBD\"", true);
        check("\"\\udc00x\"", "\"\xEF\xBF\xBDx\"", true);
        check("\"\\ud800\\u0041\"",
              "\"\xEF\xBF\xBD"
              "A\"",
              true);
        check("[\"\\ud83d\\ude00\",NaN]", "[\"\xF0\x9F\x98\x80\",null]", true);
}

TEST(control_characters_are_kept)
{
        check("\"a\nb\"", "\"a\\nb\"", true);
        check("\"a\x1b[0m\"", "\"a\\u001B[0m\"", true);
}

TEST(nul_in_values_is_kept_and_in_keys_replaced)
{
        json_t *value;

        ASSERT_OK(cop_decode_json("\"a\\u0000b\"", 10, &value, NULL, NULL), NULL);
        ASSERT_EQ(json_string_length(value), 3);
        json_decref(value);
        check("{\"a\\u0000b\":1}",
              "{\"a\xEF\xBF\xBD"
              "b\":1}",
              true);
        _cleanup_free_ char *raw = decoded_n("\"a\0b\"", 5, NULL);
        ASSERT_STR(raw, "\"a\\u0000b\"");
}

TEST(nonsense_is_refused)
{
        static const char *const bad[] = {"",      "{",       "}",           "{\"a\"}",   "[1,]",    "nan",
                                          "NaNx",  "\"a",     "'a'",         "{a:1}",     "\"\\x\"", "[1 2]",
                                          "tru",   "-",       "1.2.3",       "Infinityy", "\\",      "\"\\",
                                          "\"\\u", "\"\\u12", "\"\\u12G4\"", "undefined"};

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                ASSERT_STR(decoded_n(bad[i], strlen(bad[i]), NULL), NULL);
}

TEST(endless_nesting_is_refused)
{
        size_t n = 100000;
        char *deep = malloc(n);

        memset(deep, '[', n);
        ASSERT_STR(decoded_n(deep, n, NULL), NULL);
        free(deep);
}

TEST(a_flood_of_values_is_refused)
{
        size_t n = 10 << 20;
        char *many = malloc(n);

        for (size_t i = 0; i < n; i++)
                many[i] = i % 2 ? ',' : '1';
        many[0] = '[';
        many[n - 1] = ']';
        ASSERT_STR(decoded_n(many, n, NULL), NULL);
        /* Inside a string they are only text. */
        memset(many, ',', n);
        many[0] = many[n - 1] = '"';
        _cleanup_free_ char *text = decoded_n(many, n, NULL);
        ASSERT_EQ(strlen(text), n);
        free(many);
}

/* -- stream messages ---------------------------------------------------------------------------------------------- */

static void stream(const char *json, const char *name, const char *text)
{
        _cleanup_free_ char *copy = strdup(json);
        const char *got_name;
        char *got;
        size_t len;

        ASSERT_EQ(cop_decode_stream(copy, strlen(copy), &got_name, &got, &len), 1);
        ASSERT_STR(got_name, name);
        ASSERT_STR(got, text);
        ASSERT_EQ(len, strlen(text));
}

TEST(streams_are_decoded_in_place)
{
        stream("{\"name\":\"stdout\",\"text\":\"hello\"}", "stdout", "hello");
        stream(" { \"text\" : \"\" , \"name\" : \"stderr\" } ", "stderr", "");
        stream("{\"name\":\"stdout\",\"text\":\"a\\n\\t\\r\\b\\f\\\\\\\"\\/\"}", "stdout", "a\n\t\r\b\f\\\"/");
        stream("{\"name\":\"stdout\",\"text\":\"\\u00e9\\u20ac\\ud83d\\ude00\\u001b[0m\"}", "stdout",
               "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x1b[0m");
        stream("{\"name\":\"stdout\",\"text\":\"\xC3\xA9\\n\xE2\x82\xAC\"}", "stdout", "\xC3\xA9\n\xE2\x82\xAC");
}

TEST(odd_streams_are_left_to_the_other_decoder)
{
        static const char *const odd[] = {
                "",
                "{}",
                "{\"name\":\"stdout\"}",
                "{\"name\":\"stdout\",\"text\":7}",
                "{\"name\":\"stdout\",\"text\":\"a\",\"more\":1}",
                "{\"name\":\"stdout\",\"name\":\"a\"}",
                "{\"name\":\"stdout\",\"text\":\"a",
                "{\"name\":\"stdout\",\"text\":\"a\\",
                "{\"name\":\"stdout\",\"text\":\"\\ud800\"}",
                "{\"name\":\"stdout\",\"text\":\"\\udc00\"}",
                "{\"name\":\"stdout\",\"text\":\"a\x80\"}",
                "{\"name\":\"stdout\",\"text\":\"a\nb\"}",
                "{\"name\":\"stdout\",\"text\":\"\\x\"}",
                "{\"name\":\"stdout\",\"text\":\"a\"}x",
                "{\"nam",
        };
        const char *name;
        char *text;
        size_t len;

        for (size_t i = 0; i < ELEMENTSOF(odd); i++) {
                _cleanup_free_ char *copy = strdup(odd[i]);
                ASSERT_EQ(cop_decode_stream(copy, strlen(copy), &name, &text, &len), 0);
                ASSERT_STR(copy, odd[i]);
        }
}

/* -- outputs -------------------------------------------------------------------------------------------------------- */

static int output(const char *type, const char *content, struct cop_decoded_output *ret)
{
        static char room[1000];
        struct cop_message m = {0};

        snprintf(m.type, sizeof(m.type), "%s", type);
        snprintf(room, sizeof(room), "%s", content);
        m.content = (struct cop_frame){room, strlen(room)};
        return cop_output_decode(&m, ret, NULL);
}

TEST(every_kind_of_output)
{
        struct cop_decoded_output d;

        ASSERT_EQ(output("stream", "{\"name\":\"stderr\",\"text\":\"\\ud800x\"}", &d), 1);
        ASSERT_EQ(d.output.stream, COP_STREAM_STDERR);
        ASSERT_STR(d.output.text, "\xEF\xBF\xBDx");
        ASSERT(d.repaired);
        cop_decoded_output_done(&d);

        ASSERT_EQ(output("display_data", "{\"data\":{\"text/plain\":\"a\"},\"transient\":{\"display_id\":\"i\"}}", &d),
                  1);
        ASSERT_EQ(d.output.kind, COP_OUTPUT_DISPLAY);
        ASSERT_STR(d.output.display_id, "i");
        ASSERT(json_is_object(d.output.metadata));
        ASSERT_EQ(d.output.execution_count, -1);
        cop_decoded_output_done(&d);

        ASSERT_EQ(
                output("execute_result", "{\"data\":{\"text/plain\":\"a\"},\"metadata\":{},\"execution_count\":4}", &d),
                1);
        ASSERT_EQ(d.output.kind, COP_OUTPUT_RESULT);
        ASSERT_EQ(d.output.execution_count, 4);
        cop_decoded_output_done(&d);

        ASSERT_EQ(output("clear_output", "{\"wait\":true}", &d), 1);
        ASSERT(d.output.wait);
        cop_decoded_output_done(&d);

        ASSERT_EQ(output("error", "{\"ename\":\"E\",\"traceback\":[\"a\",7,\"b\"]}", &d), 1);
        ASSERT_STR(d.output.ename, "E");
        ASSERT_STR(d.output.evalue, "");
        ASSERT_EQ(json_array_size(d.output.traceback), 2);
        cop_decoded_output_done(&d);

        ASSERT_EQ(output("status", "{\"execution_state\":\"idle\"}", &d), 0);
        ASSERT_EQ(output("comm_open", "garbage", &d), 0);
}

TEST(outputs_that_make_no_sense)
{
        struct cop_decoded_output d;

        ASSERT_ERRNO(output("stream", "{\"name\":\"stdout\"}", &d), EBADMSG);
        ASSERT_ERRNO(output("stream", "7", &d), EBADMSG);
        ASSERT_ERRNO(output("display_data", "{\"data\":[]}", &d), EBADMSG);
        ASSERT_ERRNO(output("execute_result", "{}", &d), EBADMSG);
        ASSERT_ERRNO(output("error", "[]", &d), EBADMSG);
        ASSERT_EQ(output("error", "{}", &d), 1);
        cop_decoded_output_done(&d);
}
