/* Which handler answers a method and a path.
 *
 * Tables of routes, each with a dialect (how errors look); api-*.c holds the native ones.  A pattern is a path whose segments are
 * literal or a parameter, "{sb}".  Empty segments of a request path ("//", a trailing "/") do not count.  A literal segment wins
 * over a parameter, so "/files/stat" may stand beside "/files/{x}".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define COP_ROUTE_PARAMS_MAX 4
#define COP_ROUTE_SEGMENTS_MAX 16

struct cop_request;

enum cop_auth_rule {
        COP_AUTH_TOKEN, /* trusted peer or bearer token */
        COP_AUTH_NONE,  /* anyone who can connect */
        COP_AUTH_LOCAL, /* only a trusted peer on the Unix socket */
};

enum cop_body_rule {
        COP_BODY_NONE, /* a body is read and ignored up to 64 KiB */
        COP_BODY_JSON, /* buffered up to body_max, parsed to an object before the handler runs; empty gives an empty object */
        COP_BODY_RAW, /* the handler runs when the headers are in, and sets a sink for the bytes */
};

typedef void (*cop_handler_fn)(struct cop_request *r);

struct cop_route {
        const char *method; /* NULL ends a table.  HEAD is answered by GET, OPTIONS by the server */
        const char *pattern;
        enum cop_auth_rule auth;
        enum cop_body_rule body;
        size_t body_max; /* JSON: 0 = COP_JSON_BODY_MAX */
        cop_handler_fn fn;
};

#define COP_JSON_BODY_MAX (1u << 20)

/* How a family of routes reports errors: the body (malloc'd) for an error; NULL when out of memory. */
struct cop_dialect {
        const char *name;
        char *(*format_error)(const struct cop_error *err, size_t *ret_len);
};
extern const struct cop_dialect cop_dialect_native;

struct cop_route_table {
        const struct cop_route *routes;
        const struct cop_dialect *dialect;
};

struct cop_route_match {
        const struct cop_route *route;
        const struct cop_dialect *dialect;
        const char *params[COP_ROUTE_PARAMS_MAX]; /* borrowed from segments */
        unsigned param_count;
};

/* segments: the decoded, non-empty ones.  0; or route_not_found, method_not_allowed (then the methods of that path stand in
 * ret_allow, "GET, HEAD, OPTIONS").  An OPTIONS request gives 0 with route NULL and ret_allow filled. */
#define COP_ALLOW_MAX 128
int cop_route_find(const char *method, const char *const *segments, size_t n, struct cop_route_match *ret,
                   char ret_allow[static COP_ALLOW_MAX], struct cop_error *err);

/* All tables, ended by one without routes (main's --list-routes, tests). */
const struct cop_route_table *cop_route_tables(void);

/* Native tables. */
extern const struct cop_route cop_api_sandboxes[], cop_api_contexts[], cop_api_cells[], cop_api_exec[], cop_api_files[],
        cop_api_images[], cop_api_misc[], cop_api_packs[], cop_api_states[], cop_api_diff[];
