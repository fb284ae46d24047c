/* Theory of operation
 *
 * One curl multi handle keeps connections alive between requests; every request is one easy handle run to its end on it.
 * A reply is first collected as text (up to a limit); only when the status says success do its bytes go to the stream or file
 * that wants them, so an error reply is never taken for data.
 */
#include "client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"

#define REPLY_MAX (512u << 20)
#define LINE_MAX_N (256u << 20)
#define CONNECT_MS 5000L

struct cop_client {
        bool busy;                  /* within a request: one made from its callbacks needs a handle of its own */
        CURLM *multi;               /* owned */
        struct curl_slist *headers; /* owned: the token */
        char *socket_path;          /* owned, NULL over TCP */
        char *base;                 /* owned, "http://localhost" over a socket */
};

/* One running request. */
struct exchange {
        CURL *easy;                 /* owned */
        struct curl_slist *headers; /* owned */
        struct cop_buf reply;       /* an error, or the whole reply */
        struct cop_buf line;        /* of a stream: what came behind the last newline */
        char *body;                 /* owned by jansson's allocator */
        const struct cop_stream_request *stream;
        const struct cop_transfer *transfer;
        uint64_t moved;
        bool stopped;
        struct cop_error fault; /* errnum 0 = none: what a callback ran into */
        char text[CURL_ERROR_SIZE];
};

static void exchange_done(struct exchange *x)
{
        curl_easy_cleanup(x->easy);
        curl_slist_free_all(x->headers);
        cop_buf_done(&x->reply);
        cop_buf_done(&x->line);
        free(x->body);
}

int cop_client_new(const char *socket_path, const char *url, const char *token, struct cop_client **ret,
                   struct cop_error *err)
{
        struct cop_client *c = calloc(1, sizeof(*c));
        _cleanup_free_ char *header = NULL;

        if (!c)
                return cop_error_errno(err, ENOMEM, "HTTP client");
        c->base = strdup(url ? url : "http://localhost");
        c->socket_path = socket_path ? strdup(socket_path) : NULL;
        c->multi = c->base && (c->socket_path || !socket_path) ? curl_multi_init() : NULL;
        if (c->multi && token) {
                if (asprintf(&header, "Authorization: Bearer %s", token) < 0)
                        header = NULL;
                c->headers = header ? curl_slist_append(NULL, header) : NULL;
        }
        if (!c->multi || (token && !c->headers)) {
                cop_client_free(c);
                return cop_error_errno(err, ENOMEM, "HTTP client");
        }
        for (size_t n = strlen(c->base); n > 0 && c->base[n - 1] == '/'; n--)
                c->base[n - 1] = '\0';
        *ret = c;
        return 0;
}

struct cop_client *cop_client_free(struct cop_client *c)
{
        if (c) {
                curl_multi_cleanup(c->multi);
                curl_slist_free_all(c->headers);
                free(c->socket_path);
                free(c->base);
                free(c);
        }
        return NULL;
}

/* -- receiving ------------------------------------------------------------------------------------------------------ */

static long status_of(const struct exchange *x)
{
        long status = 0;

        curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
        return status;
}

static int one_line(struct exchange *x, const char *line, size_t n)
{
        _cleanup_json_ json_t *event = NULL;
        const char *type;

        if (n == 0)
                return 0;
        if (cop_json_parse(line, n, true, &event, &x->fault) < 0)
                return -EBADMSG;
        type = json_string_value(json_object_get(event, "type"));
        if (type && strcmp(type, "fault") == 0) {
                const char *code = json_string_value(json_object_get(event, "code"));
                const char *message = json_string_value(json_object_get(event, "message"));
                int known = code ? cop_err_code_from_name(code) : -1;
                return cop_error_set(&x->fault, EIO, known < 0 ? COP_ERR_internal : (enum cop_err_code)known, "%s",
                                     message ? message : "the stream ended with a fault");
        }
        if (x->stream->event(event, x->stream->userdata) == 0)
                return 0;
        x->stopped = true;
        return -ECANCELED;
}

static int add_lines(struct exchange *x, const char *data, size_t n)
{
        while (n > 0) {
                const char *end = memchr(data, '\n', n);
                size_t part = end ? (size_t)(end - data) : n;
                int r = cop_buf_add(&x->line, data, part);
                if (r < 0)
                        return cop_error_errno(&x->fault, r, "a line of the stream");
                if (!end)
                        return 0;
                r = one_line(x, x->line.data, x->line.len);
                cop_buf_clear(&x->line);
                if (r < 0)
                        return r;
                data += part + 1;
                n -= part + 1;
        }
        return 0;
}

/* curl takes anything but `n` as a failure. */
static size_t on_data(char *data, size_t size, size_t count, void *userdata)
{
        struct exchange *x = userdata;
        size_t n = size * count;
        int r;

        if (status_of(x) < 300 && x->stream) {
                r = add_lines(x, data, n);
        } else if (status_of(x) < 300 && x->transfer && !x->transfer->upload) {
                r = cop_write_all(x->transfer->fd, data, n);
                if (r < 0)
                        cop_error_errno(&x->fault, r, "writing what was received");
                x->moved += n;
        } else {
                r = cop_buf_add(&x->reply, data, n);
                if (r < 0)
                        cop_error_errno(&x->fault, r, "the reply");
        }
        return r < 0 ? 0 : n;
}

static size_t on_upload(char *buffer, size_t size, size_t count, void *userdata)
{
        struct exchange *x = userdata;
        ssize_t n;

        do
                n = read(x->transfer->fd, buffer, size * count);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                cop_error_errno(&x->fault, errno, "reading what is to be sent");
                return CURL_READFUNC_ABORT;
        }
        x->moved += (uint64_t)n;
        return (size_t)n;
}

static int on_progress(void *userdata, curl_off_t download_total, curl_off_t downloaded, curl_off_t upload_total,
                       curl_off_t uploaded)
{
        struct exchange *x = userdata;
        const struct cop_transfer *t = x->transfer;
        curl_off_t total = t->upload ? upload_total : download_total;

        t->progress(x->moved, total > 0 ? (uint64_t)total : 0, t->userdata);
        return 0;
}

/* -- sending -------------------------------------------------------------------------------------------------------- */

static bool add_header(struct exchange *x, const char *header)
{
        struct curl_slist *longer = curl_slist_append(x->headers, header);

        if (!longer)
                return false;
        x->headers = longer;
        return true;
}

static int set_body(struct exchange *x, json_t *body)
{
        if (!body)
                return 0;
        x->body = json_dumps(body, JSON_COMPACT);
        if (!x->body)
                return -ENOMEM;
        curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(x->body));
        curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, x->body);
        return add_header(x, "Content-Type: application/json") ? 0 : -ENOMEM;
}

static void set_transfer(struct exchange *x, const struct cop_transfer *t)
{
        if (t->upload) {
                curl_easy_setopt(x->easy, CURLOPT_UPLOAD, 1L);
                curl_easy_setopt(x->easy, CURLOPT_READFUNCTION, on_upload);
                curl_easy_setopt(x->easy, CURLOPT_READDATA, x);
                if (t->size != UINT64_MAX)
                        curl_easy_setopt(x->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->size);
        }
        if (t->progress) {
                curl_easy_setopt(x->easy, CURLOPT_NOPROGRESS, 0L);
                curl_easy_setopt(x->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
                curl_easy_setopt(x->easy, CURLOPT_XFERINFODATA, x);
        }
}

static int prepare(struct cop_client *c, struct exchange *x, const char *method, const char *path, json_t *body)
{
        _cleanup_free_ char *url = NULL;

        cop_buf_init(&x->reply, REPLY_MAX);
        cop_buf_init(&x->line, LINE_MAX_N);
        x->easy = curl_easy_init();
        if (!x->easy || asprintf(&url, "%s%s", c->base, path) < 0)
                return -ENOMEM;
        curl_easy_setopt(x->easy, CURLOPT_URL, url);
        curl_easy_setopt(x->easy, CURLOPT_PROTOCOLS_STR, "http,https");
        if (c->socket_path) {
                curl_easy_setopt(x->easy, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
                curl_easy_setopt(x->easy, CURLOPT_PROXY, "");
        }
        curl_easy_setopt(x->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
        curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPALIVE, 1L);
        curl_easy_setopt(x->easy, CURLOPT_PATH_AS_IS, 1L);
        curl_easy_setopt(x->easy, CURLOPT_ERRORBUFFER, x->text);
        curl_easy_setopt(x->easy, CURLOPT_USERAGENT, "coppice/" COPPICE_VERSION);
        curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, on_data);
        curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
        if (set_body(x, body) < 0)
                return -ENOMEM;
        if (strcmp(method, "POST") == 0 && !body) {
                curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE, 0L);
                curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, "");
        }
        curl_easy_setopt(x->easy, CURLOPT_CUSTOMREQUEST, method);
        for (struct curl_slist *h = c->headers; h; h = h->next)
                if (!add_header(x, h->data))
                        return -ENOMEM;
        const char *accept = x->stream                             ? "application/x-ndjson"
                             : x->transfer && !x->transfer->upload ? "*/*"
                                                                   : "application/json";
        char header[64];
        snprintf(header, sizeof(header), "Accept: %s", accept);
        if (!add_header(x, header))
                return -ENOMEM;
        curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers);
        return 0;
}

/* -- running -------------------------------------------------------------------------------------------------------- */

/* Runs the exchange to its end; returns curl's verdict. */
static CURLcode drive(struct cop_client *c, struct exchange *x)
{
        struct curl_waitfd wake = {.fd = x->stream ? x->stream->wake_fd : -EBADF, .events = CURL_WAIT_POLLIN};
        CURLM *multi = c->busy ? curl_multi_init() : c->multi;
        CURLcode verdict = CURLE_OK;
        bool outer = !c->busy;
        int running = 1, queued;

        if (!multi || curl_multi_add_handle(multi, x->easy) != CURLM_OK) {
                if (!outer)
                        curl_multi_cleanup(multi);
                return CURLE_OUT_OF_MEMORY;
        }
        c->busy = true;
        while (running) {
                wake.revents = 0;
                if (curl_multi_perform(multi, &running) != CURLM_OK)
                        break;
                if (running)
                        curl_multi_poll(multi, &wake, wake.fd >= 0, 1000, NULL);
                if (wake.revents && x->stream && x->stream->woken(x->stream->userdata) != 0) {
                        x->stopped = true;
                        break;
                }
        }
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &queued));)
                if (m->msg == CURLMSG_DONE)
                        verdict = m->data.result;
        curl_multi_remove_handle(multi, x->easy);
        if (outer)
                c->busy = false;
        else
                curl_multi_cleanup(multi);
        return verdict;
}

/* The error in a reply {error, code, message}, or one made from the status. */
static int reply_error(struct exchange *x, long status, struct cop_error *err)
{
        _cleanup_json_ json_t *body = NULL;
        const char *code = NULL, *message = NULL;

        if (x->reply.len && cop_json_parse(x->reply.data, x->reply.len, true, &body, NULL) == 0) {
                code = json_string_value(json_object_get(body, "code"));
                message = json_string_value(json_object_get(body, "message"));
        }
        int known = code ? cop_err_code_from_name(code) : -1;
        if (message)
                return cop_error_set(err, EREMOTEIO, known < 0 ? COP_ERR_internal : (enum cop_err_code)known, "%s",
                                     message);
        return cop_error_set(err, EPROTO, status == 401 ? COP_ERR_unauthorized : COP_ERR_internal,
                             "the daemon answered with status %ld and no explanation", status);
}

static int curl_error(struct cop_client *c, struct exchange *x, CURLcode verdict, struct cop_error *err)
{
        const char *text = x->text[0] ? x->text : curl_easy_strerror(verdict);

        switch (verdict) {
        case CURLE_COULDNT_CONNECT:
        case CURLE_COULDNT_RESOLVE_HOST:
                return cop_error_set(err, ECONNREFUSED, COP_ERR_unavailable, "no daemon answers at %s",
                                     c->socket_path ? c->socket_path : c->base);
        case CURLE_GOT_NOTHING:
        case CURLE_RECV_ERROR:
        case CURLE_SEND_ERROR:
        case CURLE_PARTIAL_FILE:
                return cop_error_set(err, ECONNRESET, COP_ERR_unavailable,
                                     "the connection to the daemon broke off (%s)", text);
        case CURLE_OUT_OF_MEMORY:
                return cop_error_errno(err, ENOMEM, "HTTP request");
        default:
                return cop_error_set(err, EIO, COP_ERR_io_error, "HTTP: %s", text);
        }
}

static int conclude(struct cop_client *c, struct exchange *x, CURLcode verdict, struct cop_error *err)
{
        if (x->stopped)
                return 1;
        if (x->fault.errnum) {
                if (err)
                        *err = x->fault;
                return -x->fault.errnum;
        }
        long status = status_of(x);
        if (status >= 400) /* also when the daemon answered before it had read all */
                return reply_error(x, status, err);
        if (verdict != CURLE_OK)
                return curl_error(c, x, verdict, err);
        if (status < 200 || status >= 300)
                return reply_error(x, status, err);
        if (x->line.len) /* a last line without its end: the writer was cut off */
                return cop_error_set(err, ECONNRESET, COP_ERR_unavailable, "the stream broke off");
        return 0;
}

static int reply_json(struct exchange *x, json_t **ret, struct cop_error *err)
{
        if (!ret)
                return 0;
        *ret = NULL;
        return x->reply.len ? cop_json_parse(x->reply.data, x->reply.len, true, ret, err) : 0;
}

int cop_client_call(struct cop_client *c, const char *method, const char *path, json_t *body, json_t **ret,
                    struct cop_error *err)
{
        __attribute__((cleanup(exchange_done))) struct exchange x = {0};
        int r = prepare(c, &x, method, path, body);

        if (r < 0)
                return cop_error_errno(err, r, "HTTP request");
        r = conclude(c, &x, drive(c, &x), err);
        return r < 0 ? r : reply_json(&x, ret, err);
}

int cop_client_ping(struct cop_client *c, struct cop_error *err)
{
        return cop_client_call(c, "GET", "/api/health", NULL, NULL, err);
}

int cop_client_stream(struct cop_client *c, const struct cop_stream_request *request, struct cop_error *err)
{
        __attribute__((cleanup(exchange_done))) struct exchange x = {.stream = request};
        int r = prepare(c, &x, request->method, request->path, request->body);

        if (r < 0)
                return cop_error_errno(err, r, "HTTP request");
        return conclude(c, &x, drive(c, &x), err);
}

int cop_client_transfer(struct cop_client *c, const struct cop_transfer *t, json_t **ret, struct cop_error *err)
{
        __attribute__((cleanup(exchange_done))) struct exchange x = {.transfer = t};
        int r = prepare(c, &x, t->method, t->path, NULL);

        if (r < 0)
                return cop_error_errno(err, r, "HTTP request");
        set_transfer(&x, t);
        curl_easy_setopt(x.easy, CURLOPT_CUSTOMREQUEST, t->method);
        r = conclude(c, &x, drive(c, &x), err);
        return r < 0 || !t->upload ? r : reply_json(&x, ret, err);
}
