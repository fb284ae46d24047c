/* Unix sockets: data in connections that are not accepted yet, and one closed by its client.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked
 * victim: refuse_running=into a unix connection that is not accepted yet (fd 7), which only a suspend can keep */
#define PENDING_DATA 1
#include "unix_listen.c"
