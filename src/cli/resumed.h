/* What a sandbox says that was resumed or taken to another state. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cli.h"

/* POSTs body (borrowed, NULL = none) to path and prints the id (json: the reply) on stdout; on stderr, when memory did not come back,
 * why not and what that means.  Returns the exit status. */
int cop_cli_travel(struct cop_cli *cli, const char *path, json_t *body, bool json);
/* The reply of such a call. */
void cop_cli_print_resumed(struct cop_cli *cli, json_t *reply, bool json);
