/* Two lists of variables as inside/variables.py gives them, compared.  The lists are foreign: what is no good in them is left out. */
#pragma once

#include <jansson.h>

/* {changes: [{name, change, a?, b?}], unsure: [{name, type, note}], same, truncated} in order of names; the sides are {type, shape?, size?,
 * digest?, note?, preview?}.  unsure: on either side no digest could be had, and type and shape are the same.  NULL when out of
 * memory. */
json_t *cop_diff_variables(json_t *a, json_t *b);
