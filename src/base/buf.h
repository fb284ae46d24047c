/* A growing byte buffer with a mandatory maximum.
 *
 * Lifecycle: cop_buf_init(&b, max) or COP_BUF(max); cop_buf_done(&b) frees.  Data is at b.data, b.len bytes, followed
 * by a NUL that is not counted (once anything was added).  Adding past max changes nothing and gives -EMSGSIZE.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

struct cop_buf {
        char *data; /* owned */
        size_t len;
        size_t allocated;
        size_t max;
};

#define COP_BUF(maximum) ((struct cop_buf){.max = (maximum)})

void cop_buf_init(struct cop_buf *b, size_t max);
void cop_buf_done(struct cop_buf *b);
#define _cleanup_buf_ __attribute__((cleanup(cop_buf_done)))

/* Each: 0, -EMSGSIZE (over max) or -ENOMEM. */
int cop_buf_add(struct cop_buf *b, const void *data, size_t n);
int cop_buf_adds(struct cop_buf *b, const char *s);
int cop_buf_addc(struct cop_buf *b, char c);
int cop_buf_addf(struct cop_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Room for n more bytes at b->data + b->len; the caller then sets len. */
int cop_buf_reserve(struct cop_buf *b, size_t n);

/* Drops the first n bytes (n <= len). */
void cop_buf_consume(struct cop_buf *b, size_t n);
void cop_buf_clear(struct cop_buf *b);

/* The data as a malloc'd NUL-terminated string; the buffer is empty after. NULL when out of memory. */
char *cop_buf_take(struct cop_buf *b);

/* One read(2) of up to `chunk` bytes into the buffer: bytes read, 0 at end of file, -errno. */
ssize_t cop_buf_read(struct cop_buf *b, int fd, size_t chunk);
