/* TCP: data in connections that are not accepted yet, and one closed by its client. */
#define PENDING_DATA 1
#include "tcp_listen.c"
