/* What `coppice-keeper --probe` says of the host: one line for each check, NAME ok|fails needed|optional DETAIL REMEDY,
 * separated by tabs. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* An array of {name, ok, needed, detail, remedy} as in the API's Doctor; lines that are none are left out.  NULL only when
 * out of memory. */
json_t *cop_checks_parse(const char *text, size_t n);
