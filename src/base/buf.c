#include "buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cop_buf_init(struct cop_buf *b, size_t max)
{
        *b = COP_BUF(max);
}

void cop_buf_done(struct cop_buf *b)
{
        free(b->data);
        *b = COP_BUF(b->max);
}

/* One byte is kept for the NUL, whatever the caller allows. */
static size_t limit_of(const struct cop_buf *b)
{
        return b->max < SIZE_MAX ? b->max : SIZE_MAX - 1;
}

int cop_buf_reserve(struct cop_buf *b, size_t n)
{
        size_t limit = limit_of(b);

        if (n > limit || b->len > limit - n)
                return -EMSGSIZE;
        size_t need = b->len + n + 1;
        if (need <= b->allocated)
                return 0;
        size_t want = b->allocated ? b->allocated : 64;
        while (want < need)
                want += want / 2 + 1;
        if (want > limit + 1)
                want = limit + 1;
        char *data = realloc(b->data, want);
        if (!data)
                return -ENOMEM;
        b->data = data;
        b->allocated = want;
        return 0;
}

int cop_buf_add(struct cop_buf *b, const void *data, size_t n)
{
        int r = cop_buf_reserve(b, n);
        if (r < 0)
                return r;
        if (n)
                memcpy(b->data + b->len, data, n);
        b->len += n;
        b->data[b->len] = '\0';
        return 0;
}

int cop_buf_adds(struct cop_buf *b, const char *s)
{
        return cop_buf_add(b, s, strlen(s));
}

int cop_buf_addc(struct cop_buf *b, char c)
{
        return cop_buf_add(b, &c, 1);
}

int cop_buf_addf(struct cop_buf *b, const char *format, ...)
{
        char *text = NULL;
        va_list ap;

        va_start(ap, format);
        int n = vasprintf(&text, format, ap);
        va_end(ap);
        if (n < 0)
                return -ENOMEM;
        int r = cop_buf_add(b, text, (size_t)n);
        free(text);
        return r;
}

void cop_buf_consume(struct cop_buf *b, size_t n)
{
        if (n >= b->len) {
                cop_buf_clear(b);
                return;
        }
        memmove(b->data, b->data + n, b->len - n + 1);
        b->len -= n;
}

void cop_buf_clear(struct cop_buf *b)
{
        b->len = 0;
        if (b->data)
                b->data[0] = '\0';
}

char *cop_buf_take(struct cop_buf *b)
{
        if (!b->data)
                return strdup("");
        char *data = b->data;
        *b = COP_BUF(b->max);
        return data;
}

ssize_t cop_buf_read(struct cop_buf *b, int fd, size_t chunk)
{
        size_t room = limit_of(b) - b->len;

        if (chunk > room)
                chunk = room;
        if (chunk == 0)
                return -EMSGSIZE;
        int r = cop_buf_reserve(b, chunk);
        if (r < 0)
                return r;
        ssize_t n = read(fd, b->data + b->len, chunk);
        if (n < 0)
                return -errno;
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        return n;
}
