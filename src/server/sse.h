/* Server-sent events from NDJSON.
 *
 * A line {"seq":7,…} becomes "data: {"seq":7,…}\nid: 7\n\n": the id stands behind the data because a line may be longer
 * than any buffer and is passed on in pieces.  Lines whose seq cannot be told get the number after the last one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cop_sse {
        char head[40], tail[40]; /* ends of the line, for its seq */
        size_t head_len, tail_len;
        uint64_t seq;
        bool in_line;
};
/* Takes from in, gives to out, never more than n.  Returns bytes written to out; *ret_taken bytes of in were used.  n must be at least 64. */
size_t cop_sse_encode(struct cop_sse *s, const char *in, size_t in_len, char *out, size_t n, size_t *ret_taken);
