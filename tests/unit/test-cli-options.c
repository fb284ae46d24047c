#include "lib/test.h"

#include "base/cleanup.h"
#include "cli/options.h"

static bool flag, other;
static const char *text;
static struct cop_list list;
static usec_t duration;
static uint64_t size, number;

static const struct cop_option options[] = {
        {"flag", 'f', COP_OPTION_FLAG, &flag, NULL, ""},
        {"other", 'o', COP_OPTION_FLAG, &other, NULL, ""},
        {"text", 't', COP_OPTION_STRING, &text, "TEXT", ""},
        {"list", 'l', COP_OPTION_LIST, &list, "ITEM", ""},
        {"duration", 0, COP_OPTION_DURATION, &duration, "TIME", ""},
        {"size", 0, COP_OPTION_SIZE, &size, "SIZE", ""},
        {"number", 0, COP_OPTION_NUMBER, &number, "N", ""},
        {0},
};

/* Parses the words of an argv that ends with NULL; the arguments are left in front. */
static int parse(char **argv, size_t *ret_after, struct cop_error *err)
{
        int argc = 0;

        while (argv[argc])
                argc++;
        return cop_options_parse(options, argc, argv, ret_after, err);
}

#define ARGV(...)                 \
        (char *[])                \
        {                         \
                __VA_ARGS__, NULL \
        }
#define W(s) (char *)(s)

TEST(every_form_of_an_option)
{
        size_t after = 99;
        char **argv = ARGV(W("a"), W("--text=x=y"), W("-l"), W("1"), W("-l2"), W("--list"), W("3"), W("-fo"), W("b"),
                           W("--duration"), W("1.5"), W("--size=2K"), W("--number"), W("7"), W("-"), W("c"));

        ASSERT_EQ(parse(argv, &after, NULL), 4);
        ASSERT_STR(argv[0], "a");
        ASSERT_STR(argv[1], "b");
        ASSERT_STR(argv[2], "-");
        ASSERT_STR(argv[3], "c");
        ASSERT_EQ(after, 0);
        ASSERT(flag && other);
        ASSERT_STR(text, "x=y");
        ASSERT_EQ(list.count, 3);
        ASSERT_STR(list.items[1], "2");
        ASSERT_EQ(duration, 1500000);
        ASSERT_EQ(size, 2048);
        ASSERT_EQ(number, 7);
}

TEST(two_dashes_end_the_options)
{
        size_t after = 0;
        char **argv = ARGV(W("demo"), W("-f"), W("--"), W("ls"), W("-l"), W("--text"));

        ASSERT_EQ(parse(argv, &after, NULL), 4);
        ASSERT_EQ(after, 3);
        ASSERT_STR(argv[1], "ls");
        ASSERT_STR(argv[3], "--text");
        ASSERT(flag && !text);
}

TEST(a_value_may_look_like_an_option)
{
        size_t after;

        ASSERT_EQ(parse(ARGV(W("--text"), W("-f")), &after, NULL), 0);
        ASSERT_STR(text, "-f");
        ASSERT(!flag);
        ASSERT_EQ(parse(ARGV(W("--text=")), &after, NULL), 0);
        ASSERT_STR(text, "");
}

TEST(faults_name_the_option)
{
        static const struct {
                const char *words[3], *message;
        } bad[] = {
                {{"--tex", "x"}, "unknown option --tex"},
                {{"-x"}, "unknown option -x"},
                {{"-fx"}, "unknown option -x"},
                {{"--text"}, "--text needs a value: --text TEXT"},
                {{"-t"}, "-t needs a value: -t TEXT"},
                {{"--flag=1"}, "--flag takes no value"},
                {{"--number", "-1"}, "--number: \"-1\" is not a whole number"},
                {{"--size=big"}, "--size: \"big\" is not a size like 512M or 4G"},
                {{"--duration", "soon"}, "--duration: \"soon\" is not a time like 30, 1.5, 250ms, 5m or 2h"},
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                struct cop_error err = COP_ERROR_NULL;
                size_t after;
                ASSERT_CODE(parse(ARGV(W(bad[i].words[0]), W(bad[i].words[1]), W(bad[i].words[2])), &after, &err), &err,
                            COP_ERR_bad_request);
                ASSERT_STR(err.message, bad[i].message);
        }
}

TEST(a_list_has_an_end)
{
        static char *argv[COP_LIST_MAX + 2];
        struct cop_error err = COP_ERROR_NULL;
        size_t after;

        for (size_t i = 0; i <= COP_LIST_MAX; i++)
                argv[i] = W("-lx");
        ASSERT_CODE(parse(argv, &after, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(list.count, COP_LIST_MAX);
}
