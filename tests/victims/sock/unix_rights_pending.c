/* A descriptor sent into a unix connection that is not accepted yet.
 * victim: refuse_running=into a unix connection that is not accepted yet (fd 7), which only a suspend can keep */
#define PENDING_DATA 1
#include "unix_rights.c"
