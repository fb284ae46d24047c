/* UTF-8 checks and repair for foreign bytes.  Unicode 15, table 3-7: well-formed sequences only, no surrogates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True when the n bytes are well-formed UTF-8. */
bool cop_utf8_valid(const char *s, size_t n);

/* Bytes of the well-formed sequence at s (1-4), 0 when the n bytes at s do not begin with one. */
size_t cop_utf8_sequence(const char *s, size_t n);

/* A new NUL-terminated copy in which each ill-formed byte is U+FFFD; *ret_len (may be NULL) is its length.  The result
 * is at most 3 n + 1 bytes.  NULL when out of memory.  NUL bytes are kept: use the length. */
char *cop_utf8_repair(const char *s, size_t n, size_t *ret_len);

/* The largest k <= n at which s may be cut without splitting a character (looks back at most 3 bytes). */
size_t cop_utf8_cut(const char *s, size_t n);

/* Drops an incomplete character at the end of a NUL-terminated string, in place. */
void cop_utf8_trim(char *s);
