/* The request target: path segments and query, percent-decoded and checked (UTF-8, no NUL). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "route.h"

#define COP_QUERY_MAX 16

struct cop_uri {
        char *text; /* owned: everything below points into it */
        const char *segments[COP_ROUTE_SEGMENTS_MAX];
        size_t segment_count;
        struct {
                const char *name, *value;
        } query[COP_QUERY_MAX];
        size_t query_count;
};

/* target: "/a/b?c=d", also absolute ("http://host/a").  bad_request when it is malformed; route_not_found when it has more
 * segments than any route. */
int cop_uri_parse(const char *target, struct cop_uri *ret, struct cop_error *err);
void cop_uri_done(struct cop_uri *u);

/* Typed parameters: 1 present, 0 absent (*ret untouched), error bad_request naming the parameter.  An empty value counts as
 * absent, except for a boolean, where it is true ("?all"). */
int cop_query_str(const struct cop_uri *u, const char *name, const char **ret, struct cop_error *err);
int cop_query_u64(const struct cop_uri *u, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                  struct cop_error *err);
int cop_query_bool(const struct cop_uri *u, const char *name, bool *ret, struct cop_error *err);
/* Octal file mode up to 07777. */
int cop_query_mode(const struct cop_uri *u, const char *name, unsigned *ret, struct cop_error *err);
/* Refuses names that are not in the NULL-terminated list, and repeated ones unless listed in `repeatable` (may be NULL). */
int cop_query_check(const struct cop_uri *u, const char *const *allowed, const char *repeatable, struct cop_error *err);
