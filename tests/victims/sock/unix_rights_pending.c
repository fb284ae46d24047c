/* A descriptor sent into a unix connection that is not accepted yet. */
#define PENDING_DATA 1
#include "unix_rights.c"
