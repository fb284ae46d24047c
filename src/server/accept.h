/* What the client wants back: Accept and Range. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum cop_accept {
        COP_ACCEPT_JSON,
        COP_ACCEPT_NDJSON,
        COP_ACCEPT_SSE,
};

/* The best of the three by quality and, at equal quality, by order; `fallback` when there is no header, only wildcards, or
 * nothing we have: a client is never refused for its Accept. */
enum cop_accept cop_accept_parse(const char *header, enum cop_accept fallback);

struct cop_range {
        uint64_t first, length;
};

/* Range of a thing of `size` bytes.  1: *ret is the one range to send; 0: send all (no header, another unit, several ranges:
 * RFC 9110 14.2 lets a server ignore those); -ERANGE with range_invalid when it lies outside. */
int cop_range_parse(const char *header, uint64_t size, struct cop_range *ret, struct cop_error *err);
