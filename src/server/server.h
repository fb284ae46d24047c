/* The HTTP server: two listeners with the same routes, on the daemon's event loop.
 *
 *      Unix socket   trusted peers (uid 0 or the daemon's own) need no token; others send one
 *      TCP           a bearer token always; Host must be an address, a loopback name or one the operator allowed
 *
 * Everything runs on the loop's thread; nothing blocks.  Free the server before the engine it serves.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"
#include "engine/engine.h"

struct cop_server;

struct cop_server_config {
        struct cop_loop *loop;            /* borrowed */
        struct cop_engine *engine;        /* borrowed */
        const char *socket_path;          /* NULL = no Unix socket; at most 107 bytes */
        mode_t socket_mode;               /* 0600, or 0660 for a group */
        const char *listen;               /* "127.0.0.1:8000", "[::1]:8000", port 0 = any; NULL = no TCP */
        bool listen_any;                  /* addresses other than loopback are allowed */
        const char *const *allowed_hosts; /* further names accepted in Host, NULL-terminated; NULL = none */
        unsigned connections_max;         /* 0 = 1024; more are answered with `unavailable` */
};

/* Listens.  The config is copied.  Errors: bad_request for an address that is malformed or not loopback, in_use for one that is
 * taken or a socket path with a live daemon behind it. */
int cop_server_new(const struct cop_server_config *config, struct cop_server **ret, struct cop_error *err);
/* Ends all connections, cancels what waits, removes the socket file; takes NULL, returns NULL. */
struct cop_server *cop_server_free(struct cop_server *s);

/* The TCP port that was bound, 0 when there is none. */
unsigned cop_server_port(const struct cop_server *s);

static inline void cop_server_freep(struct cop_server **s)
{
        *s = cop_server_free(*s);
}

/* api/openapi.yaml, built in (tools/embed.py). */
extern const char cop_openapi_yaml[];
extern const size_t cop_openapi_yaml_len;
