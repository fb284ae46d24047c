#include "engine/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "lib/test.h"

static void say(struct cop_outputs *o, enum cop_stream stream, const char *text)
{
        struct cop_output out = {.kind = COP_OUTPUT_STREAM, .stream = stream, .text = text, .text_len = strlen(text)};

        json_decref(cop_outputs_add(o, &out));
}

static void show(struct cop_outputs *o, enum cop_output_kind kind, const char *json, const char *display_id)
{
        json_t *data = json_loads(json, 0, NULL), *metadata = json_object();
        struct cop_output out = {
                .kind = kind, .data = data, .metadata = metadata, .display_id = display_id, .execution_count = -1};

        json_decref(cop_outputs_add(o, &out));
        json_decref(data);
        json_decref(metadata);
}

static json_t *spread(struct cop_outputs *o)
{
        json_t *cell = json_object();

        cop_outputs_spread(cell, cop_outputs_items(o));
        return cell;
}

static const char *field(json_t *cell, const char *name)
{
        return json_string_value(json_object_get(cell, name));
}

TEST(streams_stay_apart_and_in_order)
{
        struct cop_outputs *o = cop_outputs_new(COP_OUTPUT_MAX_DEFAULT, 0);

        say(o, COP_STREAM_STDOUT, "a");
        say(o, COP_STREAM_STDOUT, "b\n");
        say(o, COP_STREAM_STDERR, "c\n");
        say(o, COP_STREAM_STDOUT, "d\n");
        json_t *cell = spread(o);
        ASSERT_STR(field(cell, "stdout"), "ab\nd\n");
        ASSERT_STR(field(cell, "stderr"), "c\n");
        ASSERT_EQ(json_array_size(json_object_get(cell, "outputs")), 3);
        ASSERT(cop_outputs_truncated(o) == NULL);
        json_decref(cell);
        cop_outputs_free(o);
}

/* Whatever the sizes of the pieces: head + tail + dropped = all, and both ends are the true ends. */
static void check_cut(size_t cap, size_t piece, size_t total)
{
        struct cop_outputs *o = cop_outputs_new(cap, 0);
        char *text = malloc(total + 1);

        for (size_t i = 0; i < total; i++)
                text[i] = (char)('a' + i % 26);
        text[total] = '\0';
        for (size_t at = 0; at < total; at += piece) {
                struct cop_output out = {.kind = COP_OUTPUT_STREAM,
                                         .stream = COP_STREAM_STDOUT,
                                         .text = text + at,
                                         .text_len = total - at < piece ? total - at : piece};
                json_decref(cop_outputs_add(o, &out));
        }
        json_t *cell = spread(o), *truncated = cop_outputs_truncated(o);
        const char *kept = field(cell, "stdout");
        if (total <= cap) {
                ASSERT(truncated == NULL);
                ASSERT_STR(kept, text);
        } else {
                json_t *t = json_object_get(truncated, "stdout");
                size_t head = (size_t)json_integer_value(json_object_get(t, "kept_head"));
                size_t tail = (size_t)json_integer_value(json_object_get(t, "kept_tail"));
                ASSERT_EQ(json_integer_value(json_object_get(t, "bytes")), (json_int_t)total);
                ASSERT_EQ(head + tail + (size_t)json_integer_value(json_object_get(t, "dropped")), total);
                ASSERT(head + tail <= cap && head + tail >= cap / 2);
                ASSERT(strncmp(kept, text, head) == 0);
                ASSERT_STR(kept + strlen(kept) - tail, text + total - tail);
        }
        json_decref(truncated);
        json_decref(cell);
        cop_outputs_free(o);
        free(text);
}

TEST(cut_to_head_and_tail_with_exact_counts)
{
        static const size_t pieces[] = {1, 7, 511, 1024, 70000, 1000000};

        for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
                check_cut(1024, pieces[i], 1024);
                check_cut(1024, pieces[i], 1025);
                check_cut(1024, pieces[i], 100000);
                check_cut(200000, pieces[i], 1000000);
        }
}

TEST(characters_are_not_split)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);

        for (int i = 0; i < 2000; i++)
                say(o, COP_STREAM_STDOUT, "é€😀");
        json_t *cell = spread(o);
        ASSERT(strstr(field(cell, "stdout"), "\xEF\xBF\xBD") == NULL);
        json_decref(cell);
        cop_outputs_free(o);
}

TEST(displays_are_updated_in_place)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);

        show(o, COP_OUTPUT_DISPLAY, "{\"text/plain\":\"one\"}", "id");
        show(o, COP_OUTPUT_DISPLAY, "{\"text/plain\":\"other\"}", "id2");
        show(o, COP_OUTPUT_UPDATE_DISPLAY, "{\"text/plain\":\"two\"}", "id");
        json_t *cell = spread(o), *results = json_object_get(cell, "results");
        ASSERT_EQ(json_array_size(results), 2);
        ASSERT_STR(field(json_object_get(json_array_get(results, 0), "data"), "text/plain"), "two");
        ASSERT_STR(field(json_object_get(json_array_get(results, 1), "data"), "text/plain"), "other");
        json_decref(cell);
        cop_outputs_free(o);
}

TEST(clear_waits_for_the_next_output)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);
        struct cop_output clear = {.kind = COP_OUTPUT_CLEAR, .wait = true};

        say(o, COP_STREAM_STDOUT, "old\n");
        json_decref(cop_outputs_add(o, &clear));
        json_t *cell = spread(o);
        ASSERT_STR(field(cell, "stdout"), "old\n");
        json_decref(cell);
        say(o, COP_STREAM_STDOUT, "new\n");
        cell = spread(o);
        ASSERT_STR(field(cell, "stdout"), "new\n");
        json_decref(cell);
        cop_outputs_free(o);
}

TEST(same_figure_is_shown_once)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);

        show(o, COP_OUTPUT_RESULT, "{\"image/png\":\"aGVsbG8=\",\"text/plain\":\"<Figure>\"}", NULL);
        show(o, COP_OUTPUT_DISPLAY, "{\"image/png\":\"aGVsbG8=\",\"text/plain\":\"<Figure>\"}", NULL);
        show(o, COP_OUTPUT_DISPLAY, "{\"image/png\":\"b3RoZXI=\",\"text/plain\":\"<Figure>\"}", NULL);
        json_t *cell = spread(o);
        ASSERT_EQ(json_array_size(json_object_get(cell, "results")), 2);
        json_decref(cell);
        cop_outputs_free(o);
}

TEST(rich_outputs_are_bounded)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);

        for (int i = 0; i < COP_OUTPUT_RICH_ITEMS + 5; i++)
                show(o, COP_OUTPUT_DISPLAY, "{\"text/plain\":\"x\"}", NULL);
        json_t *truncated = cop_outputs_truncated(o);
        ASSERT_EQ(json_integer_value(json_object_get(json_object_get(truncated, "outputs"), "dropped")), 5);
        json_decref(truncated);
        cop_outputs_free(o);
}

TEST(long_text_of_a_result_is_cut_and_says_so)
{
        struct cop_outputs *o = cop_outputs_new(1024, 0);
        char json[5000];

        snprintf(json, sizeof(json), "{\"text/plain\":\"%04000d\"}", 0);
        show(o, COP_OUTPUT_RESULT, json, NULL);
        json_t *cell = spread(o), *result = json_array_get(json_object_get(cell, "results"), 0);
        ASSERT(strlen(field(json_object_get(result, "data"), "text/plain")) < 1200);
        ASSERT(json_object_get(json_object_get(result, "metadata"), "coppice_truncated") != NULL);
        json_decref(cell);
        cop_outputs_free(o);
}

TEST(alternating_bytes_stay_bounded)
{
        struct cop_outputs *o = cop_outputs_new(COP_OUTPUT_MAX_DEFAULT, 0);

        for (int i = 0; i < 100000; i++)
                say(o, i % 2 ? COP_STREAM_STDERR : COP_STREAM_STDOUT, "x");
        json_t *items = cop_outputs_items(o), *truncated = cop_outputs_truncated(o);
        ASSERT(json_array_size(items) < 40000);
        json_t *t = json_object_get(truncated, "stdout");
        ASSERT_EQ(json_integer_value(json_object_get(t, "bytes")), 50000);
        ASSERT_EQ(json_integer_value(json_object_get(t, "kept_head")) +
                          json_integer_value(json_object_get(t, "kept_tail")) +
                          json_integer_value(json_object_get(t, "dropped")),
                  50000);
        json_decref(truncated);
        json_decref(items);
        cop_outputs_free(o);
}

TEST(carriage_returns_are_folded)
{
        static const char *const cases[][2] = {
                {"a\r\nb\r\n", "a\nb\n"}, {"10%\r50%\r100%\n", "100%\n"},   {"line\nwait\rdone", "line\ndone"},
                {"kept\r", "kept"},       {"two\r\r\nthree", "two\nthree"}, {"\r\n\r\n", "\n\n"},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct cop_outputs *o = cop_outputs_new(1024, 0);
                say(o, COP_STREAM_STDOUT, cases[i][0]);
                json_t *cell = spread(o);
                ASSERT_STR(field(cell, "stdout"), cases[i][1]);
                json_decref(cell);
                cop_outputs_free(o);
        }
}
