/* Helpers on jansson for bodies from outside: typed getters whose errors name the field ("field \"timeout\": expected a
 * number of seconds").  A missing or null field leaves *ret untouched and returns 0; a present one returns 1. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "err.h"

/* Parses a whole body of n bytes: strict JSON, duplicate keys refused, depth limited by jansson (2048), NUL inside
 * strings allowed only with allow_nul.  Errors are bad_request with line and column. */
int cop_json_parse(const char *text, size_t n, bool allow_nul, json_t **ret, struct cop_error *err);

/* The value of a key, borrowed; NULL when it is missing or null. */
json_t *cop_json_get(json_t *object, const char *key);
/* Sets the error of a getter: "field \"KEY\": expected WHAT". */
int cop_json_expected(const char *key, const char *what, struct cop_error *err);

int cop_json_get_str(json_t *object, const char *key, const char **ret, struct cop_error *err); /* borrowed */
int cop_json_get_bool(json_t *object, const char *key, bool *ret, struct cop_error *err);
int cop_json_get_i64(json_t *object, const char *key, int64_t min, int64_t max, int64_t *ret, struct cop_error *err);
/* A number of seconds, whole or fractional, within [0, max]. */
int cop_json_get_seconds(json_t *object, const char *key, usec_t max, usec_t *ret, struct cop_error *err);
int cop_json_get_array(json_t *object, const char *key, json_t **ret, struct cop_error *err);  /* borrowed */
int cop_json_get_object(json_t *object, const char *key, json_t **ret, struct cop_error *err); /* borrowed */
/* An object whose values are all strings (env, labels), at most max_entries. */
int cop_json_get_strings(json_t *object, const char *key, size_t max_entries, json_t **ret, struct cop_error *err);
/* A malloc'd copy of a string value; NULL when it is no string, or out of memory. */
char *cop_json_copy_str(json_t *object, const char *key);
/* Refuses keys that are not in the NULL-terminated list: "unknown field \"tiemout\"". */
int cop_json_check_keys(json_t *object, const char *const *allowed, struct cop_error *err);

/* A string value from n foreign bytes: ill-formed UTF-8 becomes U+FFFD.  NULL only when out of memory. */
json_t *cop_json_foreign_string(const char *s, size_t n);

static inline void cop_json_decrefp(json_t **j)
{
        json_decref(*j);
        *j = NULL;
}
#define _cleanup_json_ __attribute__((cleanup(cop_json_decrefp)))
