#include "id.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void random_bytes(void *p, size_t n)
{
        unsigned char *bytes = p;

        while (n > 0) {
                ssize_t got = getrandom(bytes, n, 0);
                if (got < 0 && errno != EINTR)
                        abort();
                if (got < 0)
                        continue;
                bytes += got;
                n -= (size_t)got;
        }
}

char *cop_id_new(char *buf, const char *prefix, size_t n)
{
        static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        size_t used = strlen(prefix);

        memcpy(buf, prefix, used);
        while (n > 0) {
                uint8_t byte;
                random_bytes(&byte, 1);
                if (byte >= 252) /* 252 = 7 * 36: no bias */
                        continue;
                buf[used++] = alphabet[byte % 36];
                n--;
        }
        buf[used] = '\0';
        return buf;
}

char *cop_id_hex(char *buf, size_t n)
{
        static const char digits[] = "0123456789abcdef";

        for (size_t i = 0; i < n; i++) {
                uint8_t byte;
                random_bytes(&byte, 1);
                buf[2 * i] = digits[byte >> 4];
                buf[2 * i + 1] = digits[byte & 15];
        }
        buf[2 * n] = '\0';
        return buf;
}
