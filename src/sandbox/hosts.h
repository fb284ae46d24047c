/* The hostname of a sandbox; /etc/hostname and /etc/hosts, so that its own name resolves (sudo waits for that). */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define COP_HOSTNAME_MAX 63 /* bytes; a label of RFC 1123, and Linux keeps 64 (sethostname(2)) */
/* bad_request. */
int cop_hosts_check(const char *hostname, struct cop_error *err);

/* Inside the sandbox's root.  Keeps the user's lines; only the line marked as ours is replaced.  A root where this cannot
 * be written (no /etc) is fine. */
int cop_hosts_write(const char *hostname, struct cop_error *err);

/* The new text of /etc/hosts for the old one (malloc'd), NULL when out of memory.  *ret_changed: whether it differs. */
char *cop_hosts_text(const char *old, const char *hostname, int *ret_changed);
