#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "cli/params.h"
#include "cli/print.h"

static char *cleaned(const char *text, bool keep_colours)
{
        char *out = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&out, &n);

        ASSERT(f);
        cop_print_clean(f, text, keep_colours);
        ASSERT_EQ(fclose(f), 0);
        return out;
}

TEST(foreign_text_cannot_drive_the_terminal)
{
        static const struct {
                const char *in, *plain, *coloured;
        } cases[] = {
                {"a\tb\n", "a\tb\n", "a\tb\n"},
                {"\033[1;31mred\033[0m", "red", "\033[1;31mred\033[0m"},
                {"\033]0;title\007x", "]0;titlex", "]0;titlex"},
                {"\033[2Jx", "[2Jx", "[2Jx"},
                {"x\033[31", "x[31", "x[31"},
                {"x\033", "x", "x"},
                {"a\rb\bc", "abc", "abc"},
                {"caf\xC3\xA9", "caf\xC3\xA9", "caf\xC3\xA9"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *plain = cleaned(cases[i].in, false), *coloured = cleaned(cases[i].in, true);
                ASSERT_STR(plain, cases[i].plain);
                ASSERT_STR(coloured, cases[i].coloured);
        }
}

static const char *age_of(long long seconds_ago)
{
        static char buf[24];
        char stamp[64];
        time_t t = time(NULL) - (time_t)seconds_ago;
        struct tm tm;

        gmtime_r(&t, &tm);
        strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S.123456Z", &tm);
        return cop_age(stamp, buf, sizeof(buf));
}

TEST(ages)
{
        char buf[24];

        ASSERT_STR(age_of(-5), "0s");
        ASSERT_STR(age_of(600), "10m");
        ASSERT_STR(age_of(3 * 3600), "3h");
        ASSERT_STR(age_of(5 * 86400), "5d");
        ASSERT_STR(cop_age("soon", buf, sizeof(buf)), "-");
        ASSERT_STR(cop_age(NULL, buf, sizeof(buf)), "-");
}

TEST(the_text_of_a_command)
{
        json_t *shell = json_pack("{s:s}", "command", "ls -l"), *argv = json_pack("{s:[s,s]}", "argv", "git", "log"),
               *either = json_pack("{s:[s,i]}", "command", "a", 1), *none = json_object();
        char *text[] = {cop_command_text(shell), cop_command_text(argv), cop_command_text(either),
                        cop_command_text(none)};

        ASSERT_STR(text[0], "ls -l");
        ASSERT_STR(text[1], "git log");
        ASSERT_STR(text[2], "a ?");
        ASSERT_STR(text[3], "");
        for (size_t i = 0; i < ELEMENTSOF(text); i++)
                free(text[i]);
        json_decref(shell);
        json_decref(argv);
        json_decref(either);
        json_decref(none);
}

TEST(members_that_were_not_given_are_left_out)
{
        struct cop_list none = {.count = 0}, map = {.items = {"A=b=c", "E="}, .count = 2},
                        bad = {.items = {"=x"}, .count = 1};
        json_t *body = json_object();
        struct cop_error err = COP_ERROR_NULL;

        cop_param_str(body, "s", NULL);
        cop_param_u64(body, "n", 0);
        cop_param_seconds(body, "t", 0);
        ASSERT_OK(cop_param_number(body, "c", NULL, &err), &err);
        ASSERT_OK(cop_param_map(body, "m", &none, &err), &err);
        ASSERT_EQ(json_object_size(body), 0);
        cop_param_str(body, "s", "x\xFF");
        cop_param_seconds(body, "t", 1500000);
        cop_param_seconds(body, "whole", 3000000);
        ASSERT_OK(cop_param_number(body, "c", "1.5", &err), &err);
        ASSERT_OK(cop_param_map(body, "m", &map, &err), &err);
        ASSERT_STR(json_string_value(json_object_get(body, "s")), "x\xEF\xBF\xBD");
        ASSERT(json_real_value(json_object_get(body, "t")) == 1.5);
        ASSERT_EQ(json_integer_value(json_object_get(body, "whole")), 3);
        ASSERT_STR(json_string_value(json_object_get(json_object_get(body, "m"), "A")), "b=c");
        ASSERT_STR(json_string_value(json_object_get(json_object_get(body, "m"), "E")), "");
        ASSERT_CODE(cop_param_map(body, "m", &bad, &err), &err, COP_ERR_bad_request);
        static const char *const numbers[] = {"", "x", "1x", "-1", "0", "nan", "inf", "1e99"};
        for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
                ASSERT_CODE(cop_param_number(body, "c", numbers[i], &err), &err, COP_ERR_bad_request);
        json_decref(body);
}
