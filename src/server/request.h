/* One request, as handlers see it.  No handler knows the HTTP library.
 *
 * A handler answers exactly once with a cop_reply_* call, at once or later.  Until then it may keep one operation of the engine
 * in r->op; when the client goes away that operation is cancelled, on_gone is called, and nothing may be replied any more.
 *
 *      static void done(json_t *result, const struct cop_error *err, void *userdata) → cop_request_done(…)
 *      cop_thing_do(r->engine, …, cop_request_to(r), &r->op);
 *
 * Lifetime: the connection holds a reference, and every operation under way one more (cop_request_to takes it, the end of the
 * operation gives it back), so that `done` of an operation that cannot be cancelled finds a live object.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "accept.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "reply.h"
#include "route.h"
#include "uri.h"

struct cop_server;
struct cop_http; /* http.c: the connection's side of a request */

/* Where the bytes of a raw body go. */
struct cop_sink {
        /* Bytes taken, -EAGAIN (cop_request_wake when there is room), another negative errno: the reply follows. */
        ssize_t (*write)(struct cop_request *r, const char *data, size_t n);
        void (*end)(struct cop_request *r); /* all bytes were written; the reply follows */
};

struct cop_request {
        unsigned refs;
        struct cop_server *server; /* borrowed */
        struct cop_engine *engine; /* borrowed */
        struct cop_http *http;     /* owned */

        struct cop_uri uri;
        struct cop_route_match match;
        bool head;               /* the method was HEAD */
        bool local, trusted;     /* came over the Unix socket; from uid 0 or the daemon's */
        uint64_t content_length; /* UINT64_MAX = unknown (chunked) */
        json_t *json;            /* owned: the body of a JSON route, always an object */

        struct cop_op *op; /* owned: cancelled when the client goes away */
        struct cop_sink sink;
        void *state;                               /* the handler's own */
        void (*state_free)(struct cop_request *r); /* called once, when the request ends */
        void (*on_gone)(struct cop_request *r);    /* the client went away before the reply was sent completely */
        bool gone;

        struct cop_reply reply;
        int success; /* status of a successful reply through cop_request_to, 200 unless set */
};

struct cop_request *cop_request_ref(struct cop_request *r);
struct cop_request *cop_request_unref(struct cop_request *r); /* takes NULL, returns NULL */

const char *cop_request_header(struct cop_request *r, const char *name); /* borrowed; NULL = absent */
static inline const char *cop_request_param(const struct cop_request *r, unsigned i)
{
        return i < r->match.param_count ? r->match.params[i] : "";
}

/* Destination of an operation whose result is the reply: {json} with r->success, or the error. */
struct cop_op_to cop_request_to(struct cop_request *r);
/* As that, with a callback of the handler's own; it must begin with cop_request_done. */
struct cop_op_to cop_request_to_fn(struct cop_request *r, cop_op_fn done, cop_progress_fn progress);
/* Operation ended: forgets r->op and gives its reference back.  False when the client is gone: do not touch r any more. */
bool cop_request_done(struct cop_request *r);

/* The body of a raw route may come now (r->sink is set). */
void cop_request_accept_body(struct cop_request *r);
/* Something changed: room in the sink, data in the reply's source, a reply.  Cheap; may be called at any time. */
void cop_request_wake(struct cop_request *r);
