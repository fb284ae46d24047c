/* Theory of operation
 *
 * libmicrohttpd calls cop_http_on_uri when it has the request line, then cop_http_on_call several times for one request: once with
 * the headers, then with each piece of the body, then once more with size 0; that last call is repeated after every resume until
 * a response was queued.  A response may be queued only in the first and in the last of these (the library refuses it between
 * them), hence the phases:
 *
 *      HEADERS ──► BODY ──► WAITING ──► SENDING             JSON and bodiless routes: the handler runs on entering WAITING
 *      HEADERS ──► OPENING ──► BODY ──► WAITING ──► SENDING raw routes: the handler runs on entering OPENING and accepts the body
 *
 * Suspension.  Whoever has to wait (handler under way, sink full, source empty) is suspended: the library takes the socket out
 * of its epoll set and forgets it.  The rules:
 *   1. suspend only from within one of the library's callbacks for that connection, and at most once until resumed;
 *   2. resume only a suspended one (cop_request_wake checks); without a thread of its own the library only takes note, so we
 *      have to call it: from a deferred source, in the next turn of our loop, never inside the callback of an engine operation;
 *   3. a reader that returns 0 without having suspended would be called in a busy loop;
 *   4. the library does not see disconnects of a suspended connection: we watch the socket ourselves while it is suspended
 *      (on TCP a half-closed connection counts as closed, as in other servers; on a Unix socket we can tell the two apart);
 *   5. nothing may be suspended when the library is stopped (cop_http_close_all).
 * A resumed call may find that nothing has changed: every phase checks its condition again and suspends again.
 *
 * Early replies.  When a request is refused before its body is in:
 *   - small bodies are read and dropped, then answered: the connection stays usable;
 *   - larger ones are answered in the first call, or, when the body is already coming, with bytes written straight to the socket
 *     (the library has no way to do that; nothing else was sent for this request, so the stream is ours), and the connection is closed
 *     by lingering (linger.c), because closing with unread input would destroy the reply on its way.
 *
 * The client going away: on_completed with a code other than OK, or rule 4.  Both end in abandon(): the operation is cancelled,
 * on_gone is called, and later wakes do nothing.
 */
#include "http.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "auth.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "body.h"

#define DISCARD_MAX (1u << 20)      /* bodies up to this are read to the end even when refused */
#define BODY_BYTES_MAX (512u << 20) /* all buffered bodies together */
#define SOURCE_BLOCK (64 * 1024)
#define STREAM_BLOCK 2048
#define STREAM_TIMEOUT 3600u /* seconds that a reader of a stream may stand still */

/* -- life of a request ------------------------------------------------------------------------------------------ */

void *cop_http_on_uri(void *listener, const char *uri, struct MHD_Connection *connection)
{
        struct cop_listener *l = listener;
        struct cop_server *s = l->server;
        struct cop_request *r = calloc(1, sizeof(*r));
        struct cop_http *h = calloc(1, sizeof(*h));

        if (!r || !h) {
                free(r);
                free(h);
                return NULL; /* on_call then closes the connection */
        }
        *r = (struct cop_request){.refs = 1, .server = s, .engine = s->engine, .http = h, .local = l->local};
        *h = (struct cop_http){.request = r,
                               .listener = l,
                               .connection = connection,
                               .next = s->requests,
                               .started = cop_loop_now(s->loop)};
        if (s->requests)
                s->requests->prev = h;
        s->requests = h;
        if (cop_uri_parse(uri, &r->uri, &h->early) < 0)
                h->has_early = true;
        return r;
}

static void unwatch(struct cop_http *h)
{
        h->watch = cop_source_free(h->watch);
}

/* The client went away, or the server stops. */
static void abandon(struct cop_request *r)
{
        if (r->gone)
                return;
        r->gone = true;
        if (r->op) {
                cop_op_cancel(TAKE_PTR(r->op));
                cop_request_unref(r); /* done will not be called: its reference; the connection still holds one */
        }
        if (r->on_gone)
                r->on_gone(r);
}

void cop_http_on_completed(void *listener, struct MHD_Connection *connection, void **state,
                           enum MHD_RequestTerminationCode code)
{
        struct cop_request *r = *state;

        *state = NULL;
        if (!r)
                return;
        struct cop_http *h = r->http;
        struct cop_server *s = r->server;

        unwatch(h);
        if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
                abandon(r);
        cop_log_debug("%s %s: %u after %llu µs%s", h->method, r->match.route ? r->match.route->pattern : "?",
                      r->reply.status, (unsigned long long)(cop_now(CLOCK_MONOTONIC) - h->started),
                      r->gone ? ", client gone" : "");
        if (h->linger && !s->closing) {
                const union MHD_ConnectionInfo *info =
                        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
                int fd = info ? fcntl(info->connect_fd, F_DUPFD_CLOEXEC, 3) : -EBADF;
                if (fd >= 0)
                        cop_linger_add(s->lingers, fd);
        }
        if (h->prev)
                h->prev->next = h->next;
        else
                s->requests = h->next;
        if (h->next)
                h->next->prev = h->prev;
        h->connection = NULL;
        h->suspended = false;
        s->body_bytes -= h->counted; /* the server may be gone when the last reference goes */
        h->counted = 0;
        cop_reply_done(&r->reply); /* a source lets go of its record or file now, not with the last reference */
        r->reply.set = true;
        cop_request_unref(r);
}

void cop_http_close_all(struct cop_server *s)
{
        for (struct cop_http *h = s->requests; h; h = h->next) {
                abandon(h->request);
                cop_request_wake(h->request);
        }
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

static void on_watch(struct cop_source *source, int fd, uint32_t revents, void *userdata)
{
        struct cop_request *r = userdata;

        unwatch(r->http);
        abandon(r);
        cop_request_wake(r);
}

static void suspend(struct cop_http *h)
{
        const union MHD_ConnectionInfo *info =
                MHD_get_connection_info(h->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        uint32_t events = EPOLLHUP | EPOLLERR | (h->listener->local ? 0 : EPOLLRDHUP);

        if (h->suspended)
                return;
        h->suspended = true;
        MHD_suspend_connection(h->connection);
        /* Without the watch (out of memory) a disconnect is noticed when the next byte is sent. */
        if (info && !h->watch)
                (void)cop_loop_add_io(h->listener->server->loop, info->connect_fd, events, on_watch, h->request,
                                      &h->watch, NULL);
}

void cop_request_wake(struct cop_request *r)
{
        struct cop_http *h = r->http;

        if (!h->suspended)
                return;
        h->suspended = false;
        unwatch(h);
        MHD_resume_connection(h->connection);
        cop_source_set_enabled(h->listener->again, true);
}

/* -- sending ------------------------------------------------------------------------------------------------------ */

static ssize_t read_source(void *userdata, uint64_t position, char *buf, size_t n)
{
        struct cop_request *r = userdata;

        if (r->gone || !r->reply.source.read)
                return MHD_CONTENT_READER_END_WITH_ERROR;
        ssize_t got = r->reply.source.read(r->reply.source.source, buf, n);
        if (got > 0)
                return got;
        if (got == 0) {
                /* What comes next on this connection is an ordinary request again. */
                MHD_set_connection_option(r->http->connection, MHD_CONNECTION_OPTION_TIMEOUT, COP_HTTP_IDLE_TIMEOUT);
                return MHD_CONTENT_READER_END_OF_STREAM;
        }
        if (got != -EAGAIN)
                return MHD_CONTENT_READER_END_WITH_ERROR;
        suspend(r->http);
        return 0;
}

/* Hands the reply to the library. */
static enum MHD_Result queue(struct cop_request *r)
{
        struct cop_http *h = r->http;
        struct cop_reply *reply = &r->reply;
        struct MHD_Response *response;

        if (reply->source.read) {
                uint64_t size = reply->size == UINT64_MAX ? MHD_SIZE_UNKNOWN : reply->size;
                /* Without a size the library reads into the connection's pool; the block is for old clients only. */
                size_t block = size == MHD_SIZE_UNKNOWN ? STREAM_BLOCK : SOURCE_BLOCK;
                response = MHD_create_response_from_callback(size, block, read_source, r, NULL);
                MHD_set_connection_option(h->connection, MHD_CONNECTION_OPTION_TIMEOUT, STREAM_TIMEOUT);
        } else {
                /* The bytes live in the request, which outlives the response (on_completed). */
                response = MHD_create_response_from_buffer(reply->body_len, reply->body_len ? reply->body : (char *)"",
                                                           MHD_RESPMEM_PERSISTENT);
        }
        if (!response)
                return MHD_NO;
        if (reply->content_type)
                MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
        for (size_t i = 0; i < reply->header_count; i++)
                MHD_add_response_header(response, reply->headers[i].name, reply->headers[i].value);
        h->phase = COP_HTTP_SENDING;
        enum MHD_Result result = MHD_queue_response(h->connection, reply->status, response);
        MHD_destroy_response(response);
        return result;
}

/* While the body is coming in: see "Early replies". Ends the connection. */
static enum MHD_Result send_now(struct cop_request *r)
{
        struct cop_http *h = r->http;
        struct cop_reply *reply = &r->reply;
        const union MHD_ConnectionInfo *info =
                MHD_get_connection_info(h->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        _cleanup_buf_ struct cop_buf b = COP_BUF(64 * 1024);

        (void)cop_buf_addf(&b, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n",
                           reply->status, MHD_get_reason_phrase_for(reply->status),
                           reply->content_type ? reply->content_type : "text/plain", reply->body_len);
        for (size_t i = 0; i < reply->header_count; i++)
                (void)cop_buf_addf(&b, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
        (void)cop_buf_adds(&b, "\r\n");
        if (info && cop_buf_add(&b, reply->body, reply->body_len) == 0)
                (void)!send(info->connect_fd, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        h->linger = true;
        return MHD_NO;
}

/* -- receiving ---------------------------------------------------------------------------------------------------- */

static bool check_token(void *userdata, const char *token)
{
        return cop_token_check(userdata, token);
}

static int check(struct cop_request *r, struct cop_error *err)
{
        struct cop_http *h = r->http;
        struct cop_server *s = r->server;
        char allow[COP_ALLOW_MAX];
        const struct cop_auth_facts facts = {
                .local = r->local,
                .trusted = r->trusted,
                .host = cop_request_header(r, MHD_HTTP_HEADER_HOST),
                .bearer = cop_request_header(r, MHD_HTTP_HEADER_AUTHORIZATION),
                .allowed_hosts = (const char *const *)s->allowed_hosts,
                .token_check = check_token,
                .userdata = s->engine,
        };

        if (s->connections > s->connections_max) {
                cop_reply_header(r, "Connection", "close");
                return cop_error_set(err, EAGAIN, COP_ERR_unavailable,
                                     "%u connections are open, which is the limit; close some or try later",
                                     s->connections_max);
        }
        int found = h->has_early
                            ? -EINVAL
                            : cop_route_find(h->method, r->uri.segments, r->uri.segment_count, &r->match, allow, err);
        /* Who may not call at all learns nothing of routes. */
        struct cop_error refused;
        int r2 = cop_auth_check(&facts, r->match.route ? r->match.route->auth : COP_AUTH_TOKEN, &refused);
        if (r2 < 0) {
                *err = refused;
                return r2;
        }
        if (h->has_early) {
                *err = h->early;
                return -EINVAL;
        }
        if (found < 0) {
                if (err->code == COP_ERR_method_not_allowed)
                        cop_reply_header(r, "Allow", "%s", allow);
                return found;
        }
        if (!r->match.route) {
                cop_reply_header(r, "Allow", "%s", allow);
                cop_reply_text(r, 204, NULL, "", 0);
        }
        return 0;
}

static int too_large(struct cop_request *r, struct cop_error *err)
{
        char limit[COP_SIZE_MAX];

        return cop_error_set(err, EMSGSIZE, COP_ERR_payload_too_large, "the body is over the limit of %s of this call",
                             cop_format_size(r->http->body.max, limit));
}

static int prepare_body(struct cop_request *r, struct cop_error *err)
{
        const struct cop_route *route = r->match.route;
        struct cop_http *h = r->http;
        struct cop_server *s = r->server;

        if (route->body == COP_BODY_RAW)
                return 0;
        if (route->body == COP_BODY_NONE)
                h->discard = true;
        h->body.max = route->body == COP_BODY_NONE ? 64 * 1024 : route->body_max ? route->body_max : COP_JSON_BODY_MAX;
        if (r->content_length == UINT64_MAX)
                return 0;
        if (r->content_length > h->body.max)
                return too_large(r, err);
        if (r->content_length == 0 || h->discard)
                return 0;
        if (s->body_bytes + r->content_length > BODY_BYTES_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_unavailable,
                                     "too many large requests at the same time; try later");
        /* One allocation of the promised size; pages are only used as bytes arrive. */
        if (cop_buf_reserve(&h->body, r->content_length) < 0)
                return cop_error_errno(err, ENOMEM, "request body");
        h->counted = r->content_length;
        s->body_bytes += h->counted;
        return 0;
}

/* A reply is set and the body has not been read. */
static enum MHD_Result reply_early(struct cop_request *r)
{
        const char *expect = cop_request_header(r, MHD_HTTP_HEADER_EXPECT);
        bool waits = expect && strcasecmp(expect, "100-continue") == 0;

        if (r->content_length == 0)
                return queue(r);
        if (!waits && r->content_length <= DISCARD_MAX) {
                r->http->phase = COP_HTTP_BODY;
                r->http->discard = true;
                return MHD_YES;
        }
        r->http->linger = true;
        return queue(r);
}

static enum MHD_Result on_opening(struct cop_request *r)
{
        if (r->reply.set)
                return reply_early(r);
        if (r->http->body_wanted)
                r->http->phase = COP_HTTP_BODY;
        else
                suspend(r->http);
        return MHD_YES;
}

static void read_length(struct cop_request *r)
{
        const char *length = cop_request_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);

        if (cop_request_header(r, MHD_HTTP_HEADER_TRANSFER_ENCODING))
                r->content_length = UINT64_MAX;
        else if (length && cop_parse_u64(length, &r->content_length) < 0)
                r->content_length = UINT64_MAX; /* the library refuses malformed ones before we see them */
}

static enum MHD_Result on_headers(struct cop_request *r, const char *method)
{
        struct cop_http *h = r->http;
        const union MHD_ConnectionInfo *info =
                MHD_get_connection_info(h->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        struct cop_error err = COP_ERROR_NULL;

        r->trusted = info && info->socket_context != NULL;
        snprintf(h->method, sizeof(h->method), "%s", method);
        r->head = strcmp(method, "HEAD") == 0;
        read_length(r);
        int k = check(r, &err);
        if (k >= 0 && !r->reply.set)
                k = prepare_body(r, &err);
        if (k < 0)
                cop_reply_error(r, &err);
        if (r->reply.set)
                return reply_early(r);
        if (r->match.route->body == COP_BODY_RAW) {
                h->phase = COP_HTTP_OPENING;
                h->handled = true;
                r->match.route->fn(r);
                return on_opening(r);
        }
        h->phase = COP_HTTP_BODY;
        return MHD_YES;
}

static enum MHD_Result feed_sink(struct cop_request *r, const char *data, size_t *size)
{
        while (*size > 0) {
                ssize_t n = r->sink.write(r, data, *size);
                if (n < 0) {
                        /* Full, or broken with the reply on its way. */
                        if (r->reply.set)
                                return send_now(r);
                        suspend(r->http);
                        return MHD_YES;
                }
                data += n;
                *size -= (size_t)n;
        }
        return MHD_YES;
}

static enum MHD_Result on_body(struct cop_request *r, const char *data, size_t *size)
{
        struct cop_http *h = r->http;
        struct cop_error err = COP_ERROR_NULL;

        if (h->discard) {
                /* Without a length this has no natural end. */
                h->discarded += *size;
                *size = 0;
                if (h->discarded <= DISCARD_MAX || r->content_length != UINT64_MAX)
                        return MHD_YES;
                too_large(r, &err);
                cop_reply_error(r, &err);
                return send_now(r);
        }
        if (r->reply.set)
                return send_now(r);
        if (r->match.route->body == COP_BODY_RAW)
                return feed_sink(r, data, size);
        int k = cop_buf_add(&h->body, data, *size);
        if (k == 0 && r->content_length == UINT64_MAX) {
                h->counted += *size;
                r->server->body_bytes += *size;
                if (r->server->body_bytes > BODY_BYTES_MAX)
                        k = -ENOMEM;
        }
        if (k < 0) {
                if (k == -EMSGSIZE)
                        too_large(r, &err);
                else
                        cop_error_errno(&err, ENOMEM, "request body");
                cop_reply_error(r, &err);
                return send_now(r);
        }
        *size = 0;
        return MHD_YES;
}

static void run_handler(struct cop_request *r)
{
        struct cop_http *h = r->http;
        struct cop_error err = COP_ERROR_NULL;

        if (r->match.route->body == COP_BODY_JSON) {
                int k = cop_body_json(h->body.data ? h->body.data : "", h->body.len, &r->json, &err);
                cop_buf_done(&h->body);
                r->server->body_bytes -= h->counted;
                h->counted = 0;
                if (k < 0) {
                        cop_reply_error(r, &err);
                        return;
                }
        }
        r->match.route->fn(r);
}

static enum MHD_Result on_end(struct cop_request *r)
{
        struct cop_http *h = r->http;

        if (h->phase == COP_HTTP_BODY) {
                h->phase = COP_HTTP_WAITING;
                if (!r->reply.set) {
                        if (h->handled)
                                r->sink.end(r);
                        else
                                run_handler(r);
                        h->handled = true;
                }
        }
        if (r->reply.set)
                return queue(r);
        suspend(h);
        return MHD_YES;
}

enum MHD_Result cop_http_on_call(void *listener, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **state)
{
        struct cop_request *r = *state;

        if (!r || r->gone)
                return MHD_NO;
        switch (r->http->phase) {
        case COP_HTTP_HEADERS:
                return on_headers(r, method);
        case COP_HTTP_OPENING:
                return on_opening(r);
        case COP_HTTP_BODY:
                if (*size > 0)
                        return on_body(r, data, size);
                return on_end(r);
        case COP_HTTP_WAITING:
                return on_end(r);
        case COP_HTTP_SENDING:
                break;
        }
        return MHD_NO;
}
