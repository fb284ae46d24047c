/* Checks of the host, as in the API's Doctor: what the daemon, the command line and `coppice-keeper --probe` find.  The last says one line for each check, NAME ok|fails needed|optional DETAIL REMEDY,
 * separated by tabs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

void cop_checks_add(json_t *list, const char *name, bool ok, bool needed, const char *detail, const char *remedy);
/* Whether all that is needed is there. */
bool cop_checks_pass(json_t *list);
/* An array of {name, ok, needed, detail, remedy}; lines that are none are left out.  NULL only when
 * out of memory. */
json_t *cop_checks_parse(const char *text, size_t n);
