#include "lib/test.h"

#include <stdint.h>

#include "base/cleanup.h"
#include "base/parse.h"

#define UNTOUCHED 77

TEST(unsigned_numbers)
{
        static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "1x", "0x10", "1.0", "1e3", "\xC2\xB2"};
        uint64_t v = UNTOUCHED;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_parse_u64(bad[i], &v) != -EINVAL)
                        FAIL("\"%s\" was taken", bad[i]);
        ASSERT_ERRNO(cop_parse_u64("18446744073709551616", &v), ERANGE);
        ASSERT_EQ(v, UNTOUCHED);
        ASSERT_OK(cop_parse_u64("18446744073709551615", &v), NULL);
        ASSERT(v == UINT64_MAX);
        ASSERT_OK(cop_parse_u64("007", &v), NULL);
        ASSERT_EQ(v, 7);
}

TEST(signed_numbers)
{
        int64_t v = UNTOUCHED;

        ASSERT_ERRNO(cop_parse_i64("-", &v), EINVAL);
        ASSERT_ERRNO(cop_parse_i64("--1", &v), EINVAL);
        ASSERT_ERRNO(cop_parse_i64("9223372036854775808", &v), ERANGE);
        ASSERT_ERRNO(cop_parse_i64("-9223372036854775809", &v), ERANGE);
        ASSERT_EQ(v, UNTOUCHED);
        ASSERT_OK(cop_parse_i64("-9223372036854775808", &v), NULL);
        ASSERT(v == INT64_MIN);
        ASSERT_OK(cop_parse_i64("9223372036854775807", &v), NULL);
        ASSERT(v == INT64_MAX);
}

TEST(sizes)
{
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {{"0", 0},
                    {"123", 123},
                    {"1B", 1},
                    {"100K", 102400},
                    {"512M", 512u << 20},
                    {"4G", 4ull << 30},
                    {"4GiB", 4ull << 30},
                    {"4GB", 4ull << 30},
                    {"1.5G", 3ull << 29},
                    {"2T", 2ull << 40},
                    {"1g", 1u << 30}};
        static const char *const bad[] = {"",    "G",   ".",   "-1",  "1X",  "1Gi", "1GiBB",
                                          "1 G", "1GG", "1BB", "1e3", "nan", "inf"};
        uint64_t v = UNTOUCHED;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_parse_size(bad[i], &v) != -EINVAL || v != UNTOUCHED)
                        FAIL("\"%s\" was taken", bad[i]);
        ASSERT_ERRNO(cop_parse_size("99999999T", &v), ERANGE);
        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (cop_parse_size(good[i].text, &v) < 0 || v != good[i].bytes)
                        FAIL("\"%s\" gave %llu", good[i].text, (unsigned long long)v);
}

TEST(durations)
{
        static const struct {
                const char *text;
                usec_t usec;
        } good[] = {{"30", 30000000},  {"1.5", 1500000},  {"250ms", 250000},  {"7us", 7},
                    {"10s", 10000000}, {"5m", 300000000}, {"2h", 7200000000}, {"14d", 1209600000000},
                    {"0", 0},          {".5", 500000},    {"0.1", 100000}};
        static const char *const bad[] = {"", "s", "-1", "1w", "1 s", "1sec", "1e3", "1,5"};
        usec_t v = UNTOUCHED;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_parse_duration(bad[i], &v) != -EINVAL || v != UNTOUCHED)
                        FAIL("\"%s\" was taken", bad[i]);
        ASSERT_ERRNO(cop_parse_duration("99999999999999999999d", &v), ERANGE);
        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (cop_parse_duration(good[i].text, &v) < 0 || v != good[i].usec)
                        FAIL("\"%s\" gave %llu", good[i].text, (unsigned long long)v);
}

TEST(sizes_for_people)
{
        char buf[COP_SIZE_MAX];

        ASSERT_STR(cop_format_size(0, buf), "0 B");
        ASSERT_STR(cop_format_size(1023, buf), "1023 B");
        ASSERT_STR(cop_format_size(1536, buf), "1.5 KiB");
        ASSERT_STR(cop_format_size(2ull << 30, buf), "2.0 GiB");
        ASSERT_STR(cop_format_size(UINT64_MAX, buf), "16384.0 PiB");
}

TEST(names)
{
        static const char *const good[] = {
                "a", "demo", "Demo-1", "x.y_z",
                "0", "sb-x", "sb",     "a23456789012345678901234567890123456789012345678901234567890123"};
        static const char *const bad[] = {"",      "-a",
                                          ".a",    "_a",
                                          "a b",   "a/b",
                                          "a\n",   "caf\xC3\xA9",
                                          "sb_x",  "im_x",
                                          "ctx_1", "cell_1",
                                          "cmd_1", "a234567890123456789012345678901234567890123456789012345678901234"};

        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (!cop_name_valid(good[i]))
                        FAIL("\"%s\" was refused", good[i]);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_name_valid(bad[i]))
                        FAIL("\"%s\" was taken", bad[i]);
}

TEST(ids)
{
        ASSERT(cop_id_valid("sb_abc1234567", "sb_", 10));
        ASSERT(!cop_id_valid("sb_abc123456", "sb_", 10));
        ASSERT(!cop_id_valid("sb_abc12345678", "sb_", 10));
        ASSERT(!cop_id_valid("sb_ABC1234567", "sb_", 10));
        ASSERT(!cop_id_valid("im_abc1234567", "sb_", 10));
        ASSERT(!cop_id_valid("", "sb_", 10));
        ASSERT(!cop_id_valid("sb_abc12345/7", "sb_", 10));
}
