#include "lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/cleanup.h"

TEST(the_vectors_of_rfc_4648_section_10)
{
        static const char *const cases[][2] = {{"", ""},
                                               {"f", "Zg=="},
                                               {"fo", "Zm8="},
                                               {"foo", "Zm9v"},
                                               {"foob", "Zm9vYg=="},
                                               {"fooba", "Zm9vYmE="},
                                               {"foobar", "Zm9vYmFy"}};

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *text = cop_base64_encode(cases[i][0], strlen(cases[i][0]));
                char out[16];
                size_t n = 0;
                ASSERT_STR(text, cases[i][1]);
                ASSERT_EQ(cop_base64_decode_strict(text, strlen(text), out, &n), 0);
                ASSERT_EQ(n, strlen(cases[i][0]));
                ASSERT(memcmp(out, cases[i][0], n) == 0);
        }
}

TEST(every_byte_comes_back)
{
        unsigned char bytes[256];
        char out[300];
        size_t n;

        for (unsigned i = 0; i < 256; i++)
                bytes[i] = (unsigned char)i;
        _cleanup_free_ char *text = cop_base64_encode(bytes, sizeof(bytes));
        ASSERT_EQ(cop_base64_decode_strict(text, strlen(text), out, &n), 0);
        ASSERT_EQ(n, sizeof(bytes));
        ASSERT(memcmp(out, bytes, n) == 0);
}

TEST(the_strict_form_refuses_what_is_no_base64)
{
        static const char *const cases[] = {"Z",    "Zg",    "Zg=",  "Z===",     "====",     "Zg=v",
                                            "Zm 9", "Zm9v=", "Zm-_", "Zg==Zg==", "Zm9vZ=g=", "\xC3\xA4++"};

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                char out[16];
                size_t n;
                ASSERT_EQ(cop_base64_decode_strict(cases[i], strlen(cases[i]), out, &n), -EINVAL);
        }
        char out[16];
        size_t n;
        ASSERT_EQ(cop_base64_decode_strict("Zm\0v", 4, out, &n), -EINVAL);
}

TEST(the_lenient_form_stops_at_the_first_foreign_character)
{
        char out[16];
        size_t n;

        ASSERT_EQ(cop_base64_decode("Zm9vYg!!", 8, out, &n), 6);
        ASSERT_EQ(n, 4);
        ASSERT(memcmp(out, "foob", 4) == 0);
}
