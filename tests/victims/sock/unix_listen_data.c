/* Unix sockets: data in connections that are not accepted yet, and one closed by its client.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked */
#define PENDING_DATA 1
#include "unix_listen.c"
