#include "engine/nbformat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "lib/test.h"

static json_t *parse(const char *text)
{
        json_error_t error;
        json_t *value = json_loads(text, JSON_ALLOW_NUL, &error);

        if (!value)
                FAIL("%s: %s", error.text, text);
        return value;
}

static struct cop_nbformat_displays displays(void)
{
        struct cop_nbformat_displays d;

        ASSERT_EQ(cop_nbformat_displays_init(&d), 0);
        return d;
}

static void note(struct cop_nbformat_displays *d, const char *items, int64_t seq)
{
        _cleanup_json_ json_t *list = parse(items);

        cop_nbformat_displays_note(d, list, seq);
}

/* What the items of cell `seq` become, as JSON with sorted keys. */
static void check(const struct cop_nbformat_displays *d, const char *items, int64_t seq, const char *error,
                  const char *want)
{
        _cleanup_json_ json_t *list = parse(items), *told = error ? parse(error) : NULL, *wanted = parse(want),
                              *outputs = cop_nbformat_outputs(d, list, seq, told, 7);
        _cleanup_free_ char *have = json_dumps(outputs, JSON_SORT_KEYS), *text = json_dumps(wanted, JSON_SORT_KEYS);

        ASSERT_STR(have, text);
}

static void check_one(const char *items, const char *error, const char *want)
{
        struct cop_nbformat_displays d = displays();

        check(&d, items, 1, error, want);
        cop_nbformat_displays_done(&d);
}

TEST(what_a_stream_says_in_a_row_is_one_output)
{
        check_one("[{\"type\":\"stdout\",\"text\":\"a\"},{\"type\":\"stdout\",\"text\":\"b\\n\"},"
                  "{\"type\":\"stderr\",\"text\":\"e\"},{\"type\":\"truncated\",\"stream\":\"stderr\",\"dropped\":5},"
                  "{\"type\":\"stderr\",\"text\":\"f\"},{\"type\":\"stdout\",\"text\":\"c\"}]",
                  NULL,
                  "[{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"ab\\n\"},"
                  "{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":\"e\\n[… 5 bytes left out …]\\nf\"},"
                  "{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"c\"}]");
        check_one("[]", NULL, "[]");
        check_one("[{\"type\":\"clear\",\"wait\":false},{\"type\":\"nonsense\"},7,null]", NULL, "[]");
}

TEST(data_is_text_unless_its_type_is_json)
{
        check_one("[{\"type\":\"display\",\"data\":{\"text/plain\":\"p\",\"text/x\":[\"a\",\"b\"],\"text/y\":[\"a\",1],"
                  "\"text/z\":{\"k\":1},\"application/json\":{\"k\":1},\"application/v+json\":[1],"
                  "\"application/xjson\":1,\"application/+json\":2,\"text/v+json\":3},\"metadata\":7}]",
                  NULL,
                  "[{\"output_type\":\"display_data\",\"metadata\":{},\"data\":{\"text/plain\":\"p\","
                  "\"text/x\":[\"a\",\"b\"],\"text/y\":\"[\\\"a\\\", 1]\",\"text/z\":\"{\\\"k\\\": 1}\","
                  "\"application/json\":{\"k\":1},\"application/v+json\":[1],\"application/xjson\":\"1\","
                  "\"application/+json\":2,\"text/v+json\":\"3\"}}]");
}

TEST(a_result_has_its_count)
{
        check_one("[{\"type\":\"result\",\"data\":{\"text/plain\":\"1\"},\"metadata\":{\"a\":1},\"execution_count\":3},"
                  "{\"type\":\"result\",\"data\":{\"text/plain\":\"2\"}},{\"type\":\"result\",\"data\":8}]",
                  NULL,
                  "[{\"output_type\":\"execute_result\",\"execution_count\":3,\"data\":{\"text/plain\":\"1\"},"
                  "\"metadata\":{\"a\":1}},"
                  "{\"output_type\":\"execute_result\",\"execution_count\":7,\"data\":{\"text/plain\":\"2\"},"
                  "\"metadata\":{}}]");
}

TEST(an_error_is_told_once)
{
        static const char error[] = "{\"name\":\"E\",\"value\":\"v\",\"traceback\":[\"one\",2,\"two\"]}";
        static const char want[] =
                "[{\"output_type\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"one\",\"two\"]}]";

        check_one("[]", error, want);
        check_one("[{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":[\"one\",\"two\"]}]", error, want);
        check_one("[]", "{}", "[{\"output_type\":\"error\",\"ename\":\"\",\"evalue\":\"\",\"traceback\":[]}]");
        check_one("[{\"type\":\"error\"}]", NULL,
                  "[{\"output_type\":\"error\",\"ename\":\"\",\"evalue\":\"\",\"traceback\":[]}]");
}

#define SHOWN(type, id, text) "{\"type\":\"" type "\",\"display_id\":\"" id "\",\"data\":{\"text/plain\":\"" text "\"}}"
#define DATA(text) "{\"output_type\":\"display_data\",\"metadata\":{},\"data\":{\"text/plain\":\"" text "\"}}"

TEST(an_update_changes_the_display_where_it_stands)
{
        struct cop_nbformat_displays d = displays();

        note(&d, "[" SHOWN("display", "a", "1") "," SHOWN("display", "b", "x") "]", 1);
        note(&d, "[" SHOWN("update", "a", "2") "," SHOWN("update", "unknown", "u") "]", 2);
        note(&d, "[" SHOWN("display", "a", "again") "]", 3);
        note(&d, "[" SHOWN("display", "late", "1") "," SHOWN("update", "late", "2") "]", 4);
        check(&d, "[" SHOWN("display", "a", "1") "," SHOWN("display", "b", "x") "]", 1, NULL,
              "[" DATA("2") "," DATA("x") "]");
        check(&d, "[" SHOWN("update", "a", "2") "," SHOWN("update", "unknown", "u") "]", 2, NULL, "[" DATA("u") "]");
        check(&d, "[" SHOWN("display", "a", "again") "]", 3, NULL, "[" DATA("again") "]");
        check(&d, "[" SHOWN("display", "late", "1") "," SHOWN("update", "late", "2") "]", 4, NULL, "[" DATA("2") "]");
        cop_nbformat_displays_done(&d);
}

TEST(updates_beyond_the_bound_stay_where_they_came)
{
        struct cop_nbformat_displays d = displays();

        note(&d, "[" SHOWN("display", "a", "1") "]", 1);
        d.bytes = COP_NBFORMAT_DISPLAYS_MAX - 10;
        note(&d, "[" SHOWN("update", "a", "2") "," SHOWN("display", "b", "1") "]", 2);
        ASSERT_EQ(json_object_size(d.updates), 0);
        ASSERT_EQ(json_object_size(d.shown), 1);
        check(&d, "[" SHOWN("display", "a", "1") "]", 1, NULL, "[" DATA("1") "]");
        check(&d, "[" SHOWN("update", "a", "2") "]", 2, NULL, "[" DATA("2") "]");
        cop_nbformat_displays_done(&d);
}
