/* What goes back.  A reply is plain data until http.c turns it into a response of the library (or, when a body is still coming
 * in, into bytes on the socket). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct cop_request;

#define COP_REPLY_HEADERS_MAX 8

/* A body that is produced while it is sent.  read: bytes, 0 at the end, -EAGAIN (then cop_request_wake), other errors cut the
 * connection.  close is called once. */
struct cop_body_source {
        ssize_t (*read)(void *source, char *buf, size_t n);
        void (*close)(void *source);
        void *source;
};

struct cop_reply {
        bool set;
        unsigned status;
        const char *content_type; /* literal; NULL = none */
        struct {
                const char *name; /* literal */
                char *value;      /* owned */
        } headers[COP_REPLY_HEADERS_MAX];
        size_t header_count;
        char *body; /* owned */
        size_t body_len;
        bool body_static;              /* body is a literal */
        struct cop_body_source source; /* instead of body */
        uint64_t size;                 /* of the source; UINT64_MAX = unknown */
};

void cop_reply_done(struct cop_reply *reply);

/* Headers go before the reply itself.  One that does not fit or finds no memory is left out. */
void cop_reply_header(struct cop_request *r, const char *name, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* json is borrowed; NULL gives {}. */
void cop_reply_json(struct cop_request *r, unsigned status, json_t *json);
/* In the dialect of the route. */
void cop_reply_error(struct cop_request *r, const struct cop_error *err);
void cop_reply_text(struct cop_request *r, unsigned status, const char *content_type, const char *text,
                    size_t n); /* text is static */
/* The source is owned from here on, also when this fails. */
void cop_reply_source(struct cop_request *r, unsigned status, const char *content_type, struct cop_body_source source,
                      uint64_t size);
/* {"error":true,…} of an error, for replies and for the fault event of streams. */
json_t *cop_error_json(const struct cop_error *err);
