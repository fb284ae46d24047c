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

/* The end of an operation that began a cell or command, called by its done function: streams the record whose "id" the result
 * tells, and keeps that id in r->state until the request ends; or replies with the error. */
void cop_stream_begun(struct cop_request *r, enum cop_record_kind kind, json_t *result, const struct cop_error *err);

/* A stream that the handler fills: events are queued up to a bound; those past it are dropped (progress is not precious),
 * except with `must`. */
struct cop_feed;
struct cop_feed *cop_stream_feed(struct cop_request *r, enum cop_accept format); /* NULL: out of memory, was replied */
void cop_feed_add(struct cop_feed *f, json_t *event, bool must);                 /* adds "seq"; borrowed */
void cop_feed_end(struct cop_feed *f); /* the handler lets go; the stream ends when all is sent */
