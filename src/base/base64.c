#include "base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *cop_base64_encode(const void *data, size_t n)
{
        const unsigned char *p = data;
        char *text = malloc((n + 2) / 3 * 4 + 1), *out = text;

        if (!text)
                return NULL;
        for (size_t i = 0; i < n; i += 3) {
                unsigned bits =
                        (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
                *out++ = digits[bits >> 18];
                *out++ = digits[bits >> 12 & 63];
                *out++ = i + 1 < n ? digits[bits >> 6 & 63] : '=';
                *out++ = i + 2 < n ? digits[bits & 63] : '=';
        }
        *out = '\0';
        return text;
}

size_t cop_base64_decode(const char *s, size_t n, char *out, size_t *ret_len)
{
        unsigned have = 0, bits = 0;
        size_t i, len = 0;

        for (i = 0; i < n; i++) {
                const char *digit = s[i] ? strchr(digits, s[i]) : NULL;
                if (!digit)
                        break;
                have = have << 6 | (unsigned)(digit - digits);
                bits += 6;
                if (bits >= 8) {
                        bits -= 8;
                        out[len++] = (char)(have >> bits & 0xFF);
                }
        }
        *ret_len = len;
        return i;
}

int cop_base64_decode_strict(const char *s, size_t n, char *out, size_t *ret_len)
{
        size_t used = cop_base64_decode(s, n, out, ret_len);

        if (n % 4 != 0 || n - used > 2)
                return -EINVAL;
        for (; used < n; used++)
                if (s[used] != '=')
                        return -EINVAL;
        return 0;
}
