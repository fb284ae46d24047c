/* Bodies of requests. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/* A JSON body: n bytes, empty or white space gives {}.  Refuses what is not an object, NUL characters in strings (the message names
 * the field), lone surrogates and ill-formed UTF-8.  Fuzz target: tests/fuzz/fuzz-json-body.c. */
int cop_body_json(const char *text, size_t n, json_t **ret, struct cop_error *err);
