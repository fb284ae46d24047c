/* Strict parsing of numbers, sizes, durations and names.  Each returns 0 or -EINVAL/-ERANGE and touches *ret only on
 * success; white space, signs and trailing characters are errors unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

int cop_parse_u64(const char *s, uint64_t *ret); /* decimal */
int cop_parse_i64(const char *s, int64_t *ret);  /* decimal, optional - */

/* Bytes: "512M", "4G", "1.5G", "100K", "123", "4GiB", "4GB" (all powers of 1024). */
int cop_parse_size(const char *s, uint64_t *ret_bytes);

/* Duration: "30" (seconds), "1.5", "250ms", "10s", "5m", "2h", "14d". */
int cop_parse_duration(const char *s, usec_t *ret);

/* "1.5 GiB" etc. into buf; returns buf. */
#define COP_SIZE_MAX 32
char *cop_format_size(uint64_t bytes, char buf[static COP_SIZE_MAX]);

/* A sandbox, image, snapshot or context name: 1-63 of [A-Za-z0-9._-], first one a letter or digit.  Names that look
 * like ids (sb_…, im_…) are refused so that a reference is never ambiguous. */
bool cop_name_valid(const char *s);
/* prefix + exactly n of [a-z0-9]. */
bool cop_id_valid(const char *s, const char *prefix, size_t n);
