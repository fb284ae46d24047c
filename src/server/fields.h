/* Fields that several calls share: sizes, CPU shares, durations, environment. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define COP_OUTPUT_MIN (1024)
#define COP_OUTPUT_MAX (64 << 20)
#define COP_ENV_MAX 256

/* Each: 1 present, 0 absent or null, or bad_request naming the field. */
int cop_field_size(json_t *body, const char *key, uint64_t min, uint64_t *ret,
                   struct cop_error *err);                                                     /* 1048576 or "2G" */
int cop_field_cpus(json_t *body, const char *key, unsigned *ret_milli, struct cop_error *err); /* 0.1 … 1024 */
int cop_field_unsigned(json_t *body, const char *key, unsigned min, unsigned max, unsigned *ret, struct cop_error *err);
int cop_field_env(json_t *body, const char *key, json_t **ret, struct cop_error *err); /* names without = */
int cop_field_output_max(json_t *body, size_t *ret, struct cop_error *err);
/* One of the NULL-terminated words; *ret is its index. */
int cop_field_word(json_t *body, const char *key, const char *const *words, unsigned *ret, struct cop_error *err);
/* Octal string "0644", or the number that JSON has no octal for: 420. */
int cop_field_mode(json_t *body, const char *key, unsigned *ret, struct cop_error *err);
/* The value of "name"; NULL passes. */
int cop_field_check_name(const char *name, struct cop_error *err);
/* A string that must not be empty. */
int cop_field_text(json_t *body, const char *key, const char **ret, struct cop_error *err);
/* As that, and bad_request when it is absent. */
int cop_field_required(json_t *body, const char *key, const char **ret, struct cop_error *err);
