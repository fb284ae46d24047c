/* JSON as kernels write it: nearly always right, sometimes not.
 *
 * A kernel may send lone surrogates as raw bytes, literal NaN, numbers beyond any machine type (a Python int has no limit)
 * and raw control characters in strings.  None of that may cost an output, so what strict parsing refuses is mended and
 * parsed again.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Parses n bytes.  When they are not strict JSON, mends: ill-formed UTF-8 and lone \uD800 escapes become U+FFFD; NaN,
 * Infinity, -Infinity and numbers beyond double become null; integers beyond 64 bits become reals; raw control characters
 * in strings are kept; NUL in object keys becomes U+FFFD.  *ret_repaired (may be NULL) tells.  Nesting deeper than 2048, more
 * than 2 million values, more than 64 MiB that are not strict, and everything else that is no JSON is -EBADMSG. */
int cop_decode_json(const char *text, size_t n, json_t **ret, bool *ret_repaired, struct cop_error *err);

/* The two strings of a stream message's content, decoded in place over `text`, which is changed.  Returns 1 when both were
 * found, 0 when the content is of another form or not strict (text is unchanged then: use cop_decode_json).  The strings
 * are NUL-terminated (*ret_text_len counts NULs inside) and point into text. */
int cop_decode_stream(char *text, size_t n, const char **ret_name, char **ret_text, size_t *ret_text_len);
