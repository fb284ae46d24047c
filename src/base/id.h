/* Random identifiers from getrandom(2). */
#pragma once

#include <stddef.h>

/* prefix + n characters of [a-z0-9] into buf (strlen(prefix) + n + 1 bytes); returns buf.  Aborts only when the kernel
 * has no entropy source at all.  n = 10 gives 51 bits: unique enough with a check in the store. */
char *cop_id_new(char *buf, const char *prefix, size_t n);

/* 2 n lower-case hex digits of n random bytes into buf (2 n + 1 bytes); returns buf. */
char *cop_id_hex(char *buf, size_t n);
