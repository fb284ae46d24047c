/* From options to members of a request body.  What was not given is left out. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "options.h"

void cop_param_str(json_t *body, const char *key, const char *value); /* NULL = not given */
void cop_param_u64(json_t *body, const char *key, uint64_t value);    /* 0 = not given */
void cop_param_seconds(json_t *body, const char *key, usec_t value);  /* 0 = not given */
/* A number, whole or not, from text. */
int cop_param_number(json_t *body, const char *key, const char *text, struct cop_error *err);
/* K=V items as an object of strings; the message names the item that has no "=". */
int cop_param_map(json_t *body, const char *key, const struct cop_list *items, struct cop_error *err);
