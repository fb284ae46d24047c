/* Base64 with the standard alphabet and padding (RFC 4648 section 4), on one line. */
#pragma once

#include <stddef.h>

/* malloc'd text of n bytes, NUL-terminated; NULL when out of memory. */
char *cop_base64_encode(const void *data, size_t n);

/* Writes what the digits at the start of s (n characters) stand for to out, which holds n / 4 * 3 + 2 bytes; *ret_len says
 * how many they were.  Returns how many digits there were: the caller judges what follows them, such as the padding. */
size_t cop_base64_decode(const char *s, size_t n, char *out, size_t *ret_len);

/* As that, with nothing but whole groups and their padding let through: 0, -EINVAL. */
int cop_base64_decode_strict(const char *s, size_t n, char *out, size_t *ret_len);
