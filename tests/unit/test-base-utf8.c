#include "lib/test.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/utf8.h"

static size_t encode(uint32_t c, char out[4])
{
        if (c < 0x80) {
                out[0] = (char)c;
                return 1;
        }
        if (c < 0x800) {
                out[0] = (char)(0xC0 | c >> 6);
                out[1] = (char)(0x80 | (c & 0x3F));
                return 2;
        }
        if (c < 0x10000) {
                out[0] = (char)(0xE0 | c >> 12);
                out[1] = (char)(0x80 | (c >> 6 & 0x3F));
                out[2] = (char)(0x80 | (c & 0x3F));
                return 3;
        }
        out[0] = (char)(0xF0 | c >> 18);
        out[1] = (char)(0x80 | (c >> 12 & 0x3F));
        out[2] = (char)(0x80 | (c >> 6 & 0x3F));
        out[3] = (char)(0x80 | (c & 0x3F));
        return 4;
}

TEST(every_code_point_but_surrogates_is_valid)
{
        char s[4];

        for (uint32_t c = 0; c < 0x140000; c++) {
                size_t n = encode(c, s);
                bool good = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
                if (cop_utf8_sequence(s, n) != (good ? n : 0) || cop_utf8_valid(s, n) != good)
                        FAIL("U+%04X", c);
        }
}

TEST(overlong_and_truncated_forms_are_not)
{
        static const char *const bad[] = {"\x80",
                                          "\xC0\x80",
                                          "\xC1\xBF",
                                          "\xE0\x80\x80",
                                          "\xE0\x9F\xBF",
                                          "\xF0\x80\x80\x80",
                                          "\xF0\x8F\xBF\xBF",
                                          "\xF5\x80\x80\x80",
                                          "\xFF",
                                          "\xC3",
                                          "\xE2\x82",
                                          "\xF0\x9F\x98",
                                          "\xED\xA0\x80",
                                          "\xC3(",
                                          "\xF4\x90\x80\x80"};

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (cop_utf8_valid(bad[i], strlen(bad[i])))
                        FAIL("entry %zu", i);
        ASSERT(cop_utf8_valid("", 0));
        ASSERT_EQ(cop_utf8_sequence("", 0), 0);
}

static void check_repair(const char *in, size_t n, const char *out, size_t out_n)
{
        size_t len = 12345;
        _cleanup_free_ char *text = cop_utf8_repair(in, n, &len);

        ASSERT(text);
        ASSERT_EQ(len, out_n);
        ASSERT_MEM(text, out, out_n + 1);
        ASSERT(cop_utf8_valid(text, len));
}

TEST(repair_replaces_each_bad_byte)
{
        check_repair("", 0, "", 0);
        check_repair("caf\xC3\xA9", 5, "caf\xC3\xA9", 5);
        check_repair("a\xFFz", 3, "a\xEF\xBF\xBDz", 5);
        check_repair("\xED\xA0\x80", 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 9);
        check_repair("x\0y\xC3", 4, "x\0y\xEF\xBF\xBD", 6);
        check_repair("\xE2\x82\xE2\x82\xAC", 5, "\xEF\xBF\xBD\xEF\xBF\xBD\xE2\x82\xAC", 9);
}

TEST(cut_never_splits_a_character)
{
        const char *s = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"; /* borders: 0 1 3 6 10 11 */
        static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};

        for (size_t n = 0; n < ELEMENTSOF(want); n++)
                ASSERT_EQ(cop_utf8_cut(s, n), want[n]);
        ASSERT_EQ(cop_utf8_cut("\x80\x80\x80\x80\x80", 5), 5); /* no character there to split */
}

TEST(trim_drops_what_was_cut)
{
        char s[] = "ab\xF0\x9F\x98";

        cop_utf8_trim(s);
        ASSERT_STR(s, "ab");
        cop_utf8_trim(s);
        ASSERT_STR(s, "ab");
}
