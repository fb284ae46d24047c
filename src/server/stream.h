/* Streams of events to a client: NDJSON as the engine writes it, or server-sent events made from it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "request.h"

#define COP_STREAM_KEEPALIVE (15 * USEC_PER_SEC) /* SSE comments while nothing happens */

/* Opens the record and replies with it as NDJSON or, when Accept asks for it, SSE; errors of opening become the reply.
 * after_seq also comes from Last-Event-ID. */
void cop_stream_record(struct cop_request *r, enum cop_record_kind kind, const char *ref, const char *id,
                       uint64_t after_seq, bool follow);

/* A stream that the handler fills: events are queued up to a bound; those past it are dropped (progress is not precious),
 * except with `must`. */
struct cop_feed;
struct cop_feed *cop_stream_feed(struct cop_request *r, enum cop_accept format); /* NULL: out of memory, was replied */
void cop_feed_add(struct cop_feed *f, json_t *event, bool must);                 /* adds "seq"; borrowed */
void cop_feed_end(struct cop_feed *f); /* the handler lets go; the stream ends when all is sent */

/* SSE encoder over NDJSON, exported for tests: takes from in, gives to out, never more than n.  Sizes are small constants. */
struct cop_sse {
        char head[40], tail[40]; /* ends of the line, for its seq */
        size_t head_len, tail_len;
        uint64_t seq;
        bool in_line;
};
/* Returns bytes written to out; *ret_taken bytes of in were used.  n must be at least 64. */
size_t cop_sse_encode(struct cop_sse *s, const char *in, size_t in_len, char *out, size_t n, size_t *ret_taken);
