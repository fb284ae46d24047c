/* The server's sockets and how the library is driven from our loop.
 *
 * Each listener is a daemon of libmicrohttpd with an epoll descriptor of its own, which sits in our loop (level-triggered); a
 * deferred source calls the library when a connection was resumed.  One call of MHD_run makes one step of a connection; while the
 * library says that it wants to go on at once (timeout 0) we let it, a few times, then give others a turn.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "http.h"

#define CONNECTIONS_DEFAULT 1024
#define BACKLOG 4096         /* the kernel takes less where somaxconn is lower */
#define CONNECTIONS_SLACK 32 /* accepted beyond the limit, to be told so */
/* Per connection: headers (at most about half of it) and one piece of body.  The library zeroes what it gives back, so all of
 * it becomes resident; above 32 KiB it is a mapping of its own that goes back to the system when the connection ends. */
#define POOL_SIZE (48 * 1024)
#define STEPS_MAX 16

/* -- driving ------------------------------------------------------------------------------------------------------ */

static void run(struct cop_listener *l)
{
        MHD_UNSIGNED_LONG_LONG timeout = 0;
        int steps = 0;
        bool have = true;

        do {
                MHD_run(l->daemon);
                have = MHD_get_timeout(l->daemon, &timeout) == MHD_YES;
        } while (have && timeout == 0 && ++steps < STEPS_MAX);

        cop_source_set_enabled(l->again, have && timeout == 0);
        cop_source_set_time(l->timer, have && timeout > 0
                                              ? cop_usec_add(cop_now(CLOCK_MONOTONIC), timeout * USEC_PER_MSEC)
                                              : USEC_INFINITY);
}

static void on_io(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        run(userdata);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        run(userdata);
}

static void on_again(struct cop_source *s, void *userdata)
{
        run(userdata);
}

static void on_library_log(void *userdata, const char *format, va_list ap)
{
        char line[512];

        if (cop_log_max_level() < COP_LOG_DEBUG)
                return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        vsnprintf(line, sizeof(line), format, ap);
#pragma GCC diagnostic pop
        line[strcspn(line, "\n")] = '\0';
        cop_log_debug("http: %s", line);
}

void cop_http_on_connection(void *listener, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode code)
{
        struct cop_listener *l = listener;
        const union MHD_ConnectionInfo *info;
        struct ucred peer;
        socklen_t len = sizeof(peer);
        int on = 1;

        if (code != MHD_CONNECTION_NOTIFY_STARTED) {
                l->server->connections--;
                return;
        }
        l->server->connections++;
        *socket_context = NULL;
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (!info)
                return;
        if (!l->local) {
                setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                return;
        }
        /* Any non-NULL value means trusted; nobody follows the pointer. */
        if (getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
            (peer.uid == 0 || peer.uid == geteuid()))
                *socket_context = l;
}

/* -- sockets ------------------------------------------------------------------------------------------------------ */

/* True when somebody answers at the path. */
static bool socket_alive(const struct sockaddr_un *address)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        return fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);
}

static int listen_unix(struct cop_server *s, const char *path, mode_t mode, struct cop_error *err)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (strlen(path) >= sizeof(address.sun_path))
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_bad_request,
                                     "the socket path %s is longer than %zu bytes; choose a shorter one with --socket",
                                     path, sizeof(address.sun_path) - 1);
        memcpy(address.sun_path, path, strlen(path)); /* zeroed behind it */
        if (lstat(path, &st) == 0) {
                if (!S_ISSOCK(st.st_mode))
                        return cop_error_set(err, EEXIST, COP_ERR_in_use, "%s exists and is not a socket", path);
                if (socket_alive(&address))
                        return cop_error_set(err, EADDRINUSE, COP_ERR_in_use, "another daemon serves %s", path);
                unlink(path);
        }
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return cop_error_errno(err, errno, "socket");
        /* Never open to others, not even between bind and chmod. */
        mode_t mask = umask(0777 & ~(mode & 0600));
        int r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
        umask(mask);
        if (r < 0)
                return cop_error_errno(err, -r, "binding %s", path);
        if (chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)
                return cop_error_errno(err, errno, "listening on %s", path);
        s->socket_path = strdup(path);
        if (!s->socket_path)
                return cop_error_errno(err, ENOMEM, "socket path");
        s->unix_listener.local = true;
        s->unix_listener.fd = TAKE_FD(fd);
        return 0;
}

union address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
};

/* "127.0.0.1:8000", "[::1]:8000", "localhost:8000", ":8000" (loopback). */
static int parse_address(const char *text, union address *ret, socklen_t *ret_len, bool *ret_loopback,
                         struct cop_error *err)
{
        const char *colon = strrchr(text, ':');
        union address a = {0};
        char host[64];
        uint64_t port;

        if (!colon || cop_parse_u64(colon + 1, &port) < 0 || port > 65535 || (size_t)(colon - text) >= sizeof(host))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "listen address \"%.100s\": expected ADDRESS:PORT, such as 127.0.0.1:8000", text);
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = '\0';
        if (!*host || strcmp(host, "localhost") == 0)
                snprintf(host, sizeof(host), "127.0.0.1");
        size_t len = strlen(host);
        if (host[0] == '[' && host[len - 1] == ']') {
                memmove(host, host + 1, len);
                host[len - 2] = '\0';
        }
        if (inet_pton(AF_INET, host, &a.v4.sin_addr) == 1) {
                a.v4.sin_family = AF_INET;
                a.v4.sin_port = htons((uint16_t)port);
                *ret_loopback = (ntohl(a.v4.sin_addr.s_addr) >> 24) == 127;
                *ret_len = sizeof(a.v4);
        } else if (inet_pton(AF_INET6, host, &a.v6.sin6_addr) == 1) {
                a.v6.sin6_family = AF_INET6;
                a.v6.sin6_port = htons((uint16_t)port);
                *ret_loopback = IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
                *ret_len = sizeof(a.v6);
        } else {
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "listen address \"%.100s\": not an IPv4 or [IPv6] address", text);
        }
        *ret = a;
        return 0;
}

static int listen_tcp(struct cop_server *s, const char *text, bool any, struct cop_error *err)
{
        _cleanup_close_ int fd = -EBADF;
        union address a;
        socklen_t len;
        bool loopback = false;
        char name[INET6_ADDRSTRLEN];
        int on = 1;

        int r = parse_address(text, &a, &len, &loopback, err);
        if (r < 0)
                return r;
        if (!loopback && !any)
                return cop_error_set(err, EACCES, COP_ERR_bad_request,
                                     "listen address \"%.100s\" is reachable from other machines, and this server "
                                     "speaks plain HTTP: put a "
                                     "TLS proxy in front of a loopback address, or add --listen-insecure-any",
                                     text);
        fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return cop_error_errno(err, errno, "socket");
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, &a.any, len) < 0 || listen(fd, BACKLOG) < 0) {
                if (errno == EADDRINUSE)
                        return cop_error_set(err, EADDRINUSE, COP_ERR_in_use,
                                             "%s is taken by another program; choose another port with --listen", text);
                return cop_error_errno(err, errno, "listening on %s", text);
        }
        if (getsockname(fd, &a.any, &len) < 0)
                return cop_error_errno(err, errno, "getsockname");
        s->port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
        bool six = a.any.sa_family == AF_INET6;
        inet_ntop(a.any.sa_family, six ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr, name, sizeof(name));
        snprintf(s->tcp_address, sizeof(s->tcp_address), six ? "[%s]:%u" : "%s:%u", name, s->port);
        s->tcp_listener.fd = TAKE_FD(fd);
        return 0;
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static int start(struct cop_listener *l, struct cop_error *err)
{
        struct cop_server *s = l->server;
        const union MHD_DaemonInfo *info;

        l->daemon = MHD_start_daemon(
                MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, cop_http_on_call, l,
                MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET, l->fd,
                MHD_OPTION_CONNECTION_LIMIT, s->connections_max + CONNECTIONS_SLACK, MHD_OPTION_CONNECTION_TIMEOUT,
                COP_HTTP_IDLE_TIMEOUT, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_SIZE,
                MHD_OPTION_NOTIFY_COMPLETED, cop_http_on_completed, l, MHD_OPTION_NOTIFY_CONNECTION,
                cop_http_on_connection, l, MHD_OPTION_URI_LOG_CALLBACK, cop_http_on_uri, l, MHD_OPTION_END);
        if (!l->daemon)
                return cop_error_set(err, EIO, COP_ERR_internal, "the HTTP library does not start");
        info = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD);
        if (!info)
                return cop_error_set(err, EIO, COP_ERR_internal, "the HTTP library has no epoll descriptor");
        int r = cop_loop_add_io(s->loop, info->epoll_fd, EPOLLIN, on_io, l, &l->io, err);
        if (r == 0)
                r = cop_loop_add_timer(s->loop, USEC_INFINITY, on_timer, l, &l->timer, err);
        if (r == 0)
                r = cop_loop_add_defer(s->loop, on_again, l, &l->again, err);
        if (r == 0)
                run(l);
        return r;
}

static void stop(struct cop_listener *l)
{
        l->io = cop_source_free(l->io);
        l->timer = cop_source_free(l->timer);
        l->again = cop_source_free(l->again);
        if (l->daemon) {
                MHD_stop_daemon(l->daemon); /* closes the listening socket */
                l->daemon = NULL;
                l->fd = -EBADF;
        }
        l->fd = cop_close(l->fd);
}

static int copy_hosts(struct cop_server *s, const char *const *hosts, struct cop_error *err)
{
        size_t n = 0;

        while (hosts && hosts[n])
                n++;
        s->allowed_hosts = calloc(n + 1, sizeof(char *));
        for (size_t i = 0; s->allowed_hosts && i < n; i++)
                if (!(s->allowed_hosts[i] = strdup(hosts[i])))
                        return cop_error_errno(err, ENOMEM, "server");
        return s->allowed_hosts ? 0 : cop_error_errno(err, ENOMEM, "server");
}

int cop_server_new(const struct cop_server_config *config, struct cop_server **ret, struct cop_error *err)
{
        _cleanup_(cop_server_freep) struct cop_server *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "server");
        s->loop = config->loop;
        s->engine = config->engine;
        s->connections_max = config->connections_max ? config->connections_max : CONNECTIONS_DEFAULT;
        s->unix_listener = (struct cop_listener){.server = s, .fd = -EBADF};
        s->tcp_listener = (struct cop_listener){.server = s, .fd = -EBADF};
        int r = copy_hosts(s, config->allowed_hosts, err);
        if (r == 0)
                r = cop_lingers_new(s->loop, &s->lingers, err);
        /* Both sockets before either serves: a taken port must not leave half a server behind. */
        if (r == 0 && config->listen)
                r = listen_tcp(s, config->listen, config->listen_any, err);
        if (r == 0 && config->socket_path)
                r = listen_unix(s, config->socket_path, config->socket_mode ? config->socket_mode : 0600, err);
        if (r == 0 && s->unix_listener.fd >= 0)
                r = start(&s->unix_listener, err);
        if (r == 0 && s->tcp_listener.fd >= 0)
                r = start(&s->tcp_listener, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

struct cop_server *cop_server_free(struct cop_server *s)
{
        if (!s)
                return NULL;
        s->closing = true;
        cop_http_close_all(s);
        stop(&s->unix_listener);
        stop(&s->tcp_listener);
        s->lingers = cop_lingers_free(s->lingers);
        if (s->socket_path)
                unlink(s->socket_path);
        free(s->socket_path);
        for (char **h = s->allowed_hosts; h && *h; h++)
                free(*h);
        free(s->allowed_hosts);
        free(s);
        return NULL;
}

unsigned cop_server_port(const struct cop_server *s)
{
        return s->port;
}
