#include "utf8.h"

#include <stdlib.h>
#include <string.h>

size_t cop_utf8_sequence(const char *str, size_t n)
{
        const unsigned char *s = (const unsigned char *)str;
        unsigned char low = 0x80, high = 0xBF;
        size_t len;

        if (n == 0)
                return 0;
        if (s[0] < 0x80)
                return 1;
        if (s[0] >= 0xC2 && s[0] <= 0xDF) {
                len = 2;
        } else if (s[0] >= 0xE0 && s[0] <= 0xEF) {
                len = 3;
                if (s[0] == 0xE0)
                        low = 0xA0;
                else if (s[0] == 0xED)
                        high = 0x9F;
        } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
                len = 4;
                if (s[0] == 0xF0)
                        low = 0x90;
                else if (s[0] == 0xF4)
                        high = 0x8F;
        } else {
                return 0;
        }
        if (n < len || s[1] < low || s[1] > high)
                return 0;
        for (size_t i = 2; i < len; i++)
                if ((s[i] & 0xC0) != 0x80)
                        return 0;
        return len;
}

bool cop_utf8_valid(const char *s, size_t n)
{
        for (size_t i = 0; i < n;) {
                size_t len = cop_utf8_sequence(s + i, n - i);
                if (len == 0)
                        return false;
                i += len;
        }
        return true;
}

char *cop_utf8_repair(const char *s, size_t n, size_t *ret_len)
{
        size_t bad = 0;

        for (size_t i = 0; i < n;) {
                size_t len = cop_utf8_sequence(s + i, n - i);
                bad += len == 0;
                i += len ? len : 1;
        }
        char *out = malloc(n + 2 * bad + 1);
        if (!out)
                return NULL;
        size_t used = 0;
        for (size_t i = 0; i < n;) {
                size_t len = cop_utf8_sequence(s + i, n - i);
                if (len) {
                        memcpy(out + used, s + i, len);
                        used += len;
                        i += len;
                } else {
                        memcpy(out + used, "\xEF\xBF\xBD", 3);
                        used += 3;
                        i++;
                }
        }
        out[used] = '\0';
        if (ret_len)
                *ret_len = used;
        return out;
}

size_t cop_utf8_cut(const char *s, size_t n)
{
        size_t i = n;

        for (int back = 0; back < 4 && i > 0; back++) {
                unsigned char c = (unsigned char)s[i - 1];
                if (c < 0x80)
                        return n;
                i--;
                if (c >= 0xC0) {
                        size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
                        return n - i >= need ? n : i;
                }
        }
        return n;
}

void cop_utf8_trim(char *s)
{
        s[cop_utf8_cut(s, strlen(s))] = '\0';
}
