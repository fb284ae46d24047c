/* Inside the server: listeners, connections and the phases of a request (theory of operation atop http.c). */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/loop.h"
#include "request.h"
#include "server.h"

#define COP_HTTP_IDLE_TIMEOUT 120u /* seconds without a byte, when not suspended */

struct cop_lingers;

struct cop_listener {
        struct cop_server *server;             /* borrowed */
        bool local;                            /* Unix socket */
        int fd;                                /* owned by the library once daemon is set */
        struct MHD_Daemon *daemon;             /* owned */
        struct cop_source *io, *timer, *again; /* owned */
        bool running;                          /* inside MHD_run */
};

struct cop_server {
        struct cop_loop *loop;     /* borrowed */
        struct cop_engine *engine; /* borrowed */
        struct cop_listener unix_listener, tcp_listener;
        char *socket_path;    /* owned */
        char **allowed_hosts; /* owned, NULL-terminated */
        char tcp_address[64]; /* "127.0.0.1:8000", empty = none */
        unsigned port;
        unsigned connections, connections_max;
        size_t body_bytes; /* buffered bodies of all requests */
        bool closing;
        struct cop_http *requests;   /* list */
        struct cop_lingers *lingers; /* owned */
};

enum cop_http_phase {
        COP_HTTP_HEADERS, /* headers are in, nothing was decided */
        COP_HTTP_OPENING, /* raw body: the handler has not yet said that it wants it */
        COP_HTTP_BODY,    /* bytes are coming */
        COP_HTTP_WAITING, /* all is in, the handler works */
        COP_HTTP_SENDING, /* the reply belongs to the library */
};

struct cop_http {
        struct cop_request *request;       /* borrowed: the other half */
        struct cop_listener *listener;     /* borrowed */
        struct MHD_Connection *connection; /* borrowed; NULL when it is over */
        struct cop_http *next, *prev;
        enum cop_http_phase phase;
        char method[12];
        struct cop_buf body;
        size_t counted; /* of body in server->body_bytes */
        uint64_t discarded;
        struct cop_error early; /* what on_uri found wrong */
        bool has_early;
        bool suspended;
        bool discard; /* read the body, use nothing of it */
        bool handled; /* the handler was called */
        bool body_wanted;
        bool linger;              /* unread bytes may be on their way: do not close at once */
        struct cop_source *watch; /* owned: disconnects while suspended */
        usec_t started;
};

/* http.c: callbacks for the library. */
void *cop_http_on_uri(void *listener, const char *uri, struct MHD_Connection *connection);
enum MHD_Result cop_http_on_call(void *listener, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **state);
void cop_http_on_completed(void *listener, struct MHD_Connection *connection, void **state,
                           enum MHD_RequestTerminationCode code);
void cop_http_on_connection(void *listener, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode code);
/* Ends the wait of every request, so that the library can be stopped. */
void cop_http_close_all(struct cop_server *s);

/* linger.c: sockets that are read empty before they close, so that the reply is not lost to a reset (RFC 9112 9.6). */
int cop_lingers_new(struct cop_loop *loop, struct cop_lingers **ret, struct cop_error *err);
struct cop_lingers *cop_lingers_free(struct cop_lingers *l);
void cop_linger_add(struct cop_lingers *l, int fd); /* takes fd */
