/* api/openapi.yaml, built in (tools/embed.py). */
#pragma once

#include <stddef.h>

extern const char cop_openapi_yaml[];
extern const size_t cop_openapi_yaml_len;
