#include "lib/test.h"

#include <ctype.h>

#include "base/id.h"
#include "base/parse.h"

TEST(ids_have_their_form_and_differ)
{
        char a[14], b[14];

        for (int i = 0; i < 1000; i++) {
                ASSERT(cop_id_valid(cop_id_new(a, "sb_", 10), "sb_", 10));
                ASSERT(strcmp(a, cop_id_new(b, "sb_", 10)) != 0);
        }
        ASSERT_STR(cop_id_new(a, "x", 0), "x");
}

TEST(every_character_of_the_alphabet_occurs)
{
        char id[1001];
        unsigned seen[256] = {0};

        cop_id_new(id, "", 1000);
        for (const char *c = id; *c; c++)
                seen[(unsigned char)*c]++;
        for (const char *c = "abcdefghijklmnopqrstuvwxyz0123456789"; *c; c++)
                ASSERT_GT(seen[(unsigned char)*c], 0);
}

TEST(hex)
{
        char hex[33];

        ASSERT_EQ(strlen(cop_id_hex(hex, 16)), 32);
        for (const char *c = hex; *c; c++)
                ASSERT(isdigit((unsigned char)*c) || (*c >= 'a' && *c <= 'f'));
        ASSERT_STR(cop_id_hex(hex, 0), "");
}
