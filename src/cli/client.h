/* The HTTP client: one daemon, reached through its Unix socket or, with COPPICE_URL, over TCP.
 *
 * Replies with an error status become struct cop_error with the API's own code and message.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct cop_client;

/* socket_path: a Unix socket; url: "http://HOST:PORT" (then socket_path is NULL), with a bearer token or NULL. */
int cop_client_new(const char *socket_path, const char *url, const char *token, struct cop_client **ret,
                   struct cop_error *err);
struct cop_client *cop_client_free(struct cop_client *c); /* takes NULL */
/* Whether a daemon answers: 0, or -errno with err (code unavailable when nobody listens). */
int cop_client_ping(struct cop_client *c, struct cop_error *err);

/* One request with a JSON body (NULL = none; borrowed).  *ret (may be NULL) is the reply's JSON, NULL for an empty one. */
int cop_client_call(struct cop_client *c, const char *method, const char *path, json_t *body, json_t **ret,
                    struct cop_error *err);

/* An event of a stream; return != 0 to stop.  Borrowed. */
typedef int (*cop_event_fn)(json_t *event, void *userdata);

struct cop_stream_request {
        const char *method, *path;
        json_t *body; /* borrowed, NULL = none */
        cop_event_fn event;
        /* Called when wake_fd becomes readable, -EBADF = none; return != 0 to stop. */
        int wake_fd;
        int (*woken)(void *userdata);
        void *userdata;
};
/* A request answered as NDJSON.  0 when the stream ended; 1 when a callback stopped it; a negative errno when it failed or
 * broke off.  An event of type "fault" ends it as the error it carries. */
int cop_client_stream(struct cop_client *c, const struct cop_stream_request *request, struct cop_error *err);

/* Bytes done so far, total 0 = unknown. */
typedef void (*cop_progress_fn)(uint64_t done, uint64_t total, void *userdata);

struct cop_transfer {
        const char *method, *path;
        int fd;        /* borrowed: read for an upload, written for a download */
        uint64_t size; /* upload: bytes that will come, UINT64_MAX = unknown */
        bool upload;
        cop_progress_fn progress; /* may be NULL */
        void *userdata;
};
/* Raw bytes in constant memory.  *ret is the JSON reply of an upload (may be NULL). */
int cop_client_transfer(struct cop_client *c, const struct cop_transfer *t, json_t **ret, struct cop_error *err);
