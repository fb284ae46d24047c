/* Streams of events.
 *
 * A source of NDJSON lines (a record of the engine, or a feed that a handler fills) goes to the client as it is, or as
 * server-sent events.  Nothing is buffered beyond one block per client: the next block is read when the client's socket has taken
 * the last, so a client that does not read costs a suspended connection and a file offset.
 */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "http.h"
#include "sse.h"

#define BLOCK (8 * 1024)
#define FEED_MAX (256 * 1024)

struct lines {
        ssize_t (*read)(void *source, char *buf, size_t n); /* as cop_record_read */
        void (*close)(void *source);
        void *source;
};

struct stream {
        struct cop_request *request; /* borrowed: the stream belongs to its reply */
        struct lines lines;
        bool ended;               /* nothing more from lines */
        bool keep_alive;          /* the timer wants a comment sent */
        bool mid_line;            /* NDJSON: the client has the beginning of a line */
        struct cop_source *timer; /* owned; SSE only */
        struct cop_sse sse;
        char *in; /* owned: BLOCK bytes; SSE only */
        size_t in_len, in_used;
};

/* -- reading ------------------------------------------------------------------------------------------------------ */

/* The record broke: the last thing the client gets is a fault event. */
static ssize_t fault(struct stream *st, int errnum, char *buf, size_t n)
{
        struct cop_error err;

        st->ended = true;
        if (st->mid_line || n < 256)
                return -EIO;
        cop_error_errno(&err, errnum, "reading the record");
        return snprintf(
                buf, n,
                "{\"type\":\"fault\",\"error\":true,\"code\":\"%s\",\"message\":\"%.100s\",\"retryable\":false}\n",
                cop_err_code_name(err.code), err.message);
}

static ssize_t read_lines(struct stream *st, char *buf, size_t n)
{
        if (st->ended)
                return 0;
        ssize_t got = st->lines.read(st->lines.source, buf, n);
        if (got == -EAGAIN)
                return got;
        if (got < 0)
                got = fault(st, (int)-got, buf, n);
        else if (got == 0)
                st->ended = true;
        if (got > 0)
                st->mid_line = buf[got - 1] != '\n';
        return got;
}

static void arm(struct stream *st)
{
        cop_source_set_time(st->timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), COP_STREAM_KEEPALIVE));
}

static ssize_t read_sse(void *userdata, char *buf, size_t n)
{
        static const char comment[] = ": still here\n\n";
        struct stream *st = userdata;
        size_t len = 0;

        if (n < 128)
                return -EIO;
        while (n - len >= 64) {
                if (st->in_used == st->in_len) {
                        ssize_t got = read_lines(st, st->in, BLOCK);
                        if (got <= 0 && len > 0)
                                break;
                        if (got == -EAGAIN && st->keep_alive && !st->sse.in_line) {
                                st->keep_alive = false;
                                arm(st);
                                memcpy(buf, comment, sizeof(comment) - 1);
                                return sizeof(comment) - 1;
                        }
                        if (got <= 0)
                                return got;
                        st->in_len = (size_t)got;
                        st->in_used = 0;
                }
                size_t taken;
                len += cop_sse_encode(&st->sse, st->in + st->in_used, st->in_len - st->in_used, buf + len, n - len,
                                      &taken);
                st->in_used += taken;
        }
        arm(st);
        return (ssize_t)len;
}

static ssize_t read_ndjson(void *userdata, char *buf, size_t n)
{
        return read_lines(userdata, buf, n);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct stream *st = userdata;

        st->keep_alive = true;
        cop_request_wake(st->request);
}

static void stream_free(void *userdata)
{
        struct stream *st = userdata;

        if (st->lines.close)
                st->lines.close(st->lines.source);
        cop_source_free(st->timer);
        free(st->in);
        free(st);
}

static struct stream *stream_new(struct cop_request *r, enum cop_accept format, uint64_t after_seq)
{
        struct cop_error err = COP_ERROR_NULL;
        struct stream *st = calloc(1, sizeof(*st));
        bool sse = format == COP_ACCEPT_SSE;

        if (st && sse)
                st->in = malloc(BLOCK);
        int k = !st || (sse && !st->in) ? cop_error_errno(&err, ENOMEM, "stream") : 0;
        if (k == 0 && sse)
                k = cop_loop_add_timer(r->server->loop, USEC_INFINITY, on_timer, st, &st->timer, &err);
        if (k < 0) {
                cop_reply_error(r, &err);
                if (st)
                        stream_free(st);
                return NULL;
        }
        st->request = r;
        st->sse.seq = after_seq;
        return st;
}

static void reply(struct cop_request *r, struct stream *st, enum cop_accept format)
{
        bool sse = format == COP_ACCEPT_SSE;

        cop_reply_header(r, "Cache-Control", "no-store");
        cop_reply_header(r, "X-Accel-Buffering", "no");
        if (sse)
                arm(st);
        cop_reply_source(
                r, 200, sse ? "text/event-stream" : "application/x-ndjson",
                (struct cop_body_source){.read = sse ? read_sse : read_ndjson, .close = stream_free, .source = st},
                UINT64_MAX);
}

/* -- records ------------------------------------------------------------------------------------------------------ */

static ssize_t record_read(void *source, char *buf, size_t n)
{
        return cop_record_read(source, buf, n);
}

static void record_close(void *source)
{
        cop_record_close(source);
}

static void record_more(void *userdata)
{
        cop_request_wake(userdata);
}

void cop_stream_record(struct cop_request *r, enum cop_record_kind kind, const char *ref, const char *id,
                       uint64_t after_seq, bool follow)
{
        enum cop_accept format = cop_accept_parse(cop_request_header(r, "Accept"), COP_ACCEPT_NDJSON);
        const char *last = cop_request_header(r, "Last-Event-ID");
        struct cop_record_reader *reader = NULL;
        struct cop_error err = COP_ERROR_NULL;

        if (last && after_seq == 0)
                after_seq = strtoull(last, NULL, 10);
        struct stream *st = stream_new(r, format, after_seq);
        if (!st)
                return;
        if (cop_record_open(r->engine, kind, ref, id, after_seq, follow, record_more, r, &reader, &err) < 0) {
                cop_reply_error(r, &err);
                stream_free(st);
                return;
        }
        st->lines = (struct lines){.read = record_read, .close = record_close, .source = reader};
        reply(r, st, format);
}

static void free_id(struct cop_request *r)
{
        free(r->state);
}

void cop_stream_begun(struct cop_request *r, enum cop_record_kind kind, json_t *result, const struct cop_error *err)
{
        if (!cop_request_done(r))
                return;
        const char *id = json_string_value(json_object_get(result, "id"));
        if (err || !id) {
                struct cop_error none;
                cop_error_set(&none, EIO, COP_ERR_internal, "the engine gave no %s id",
                              kind == COP_RECORD_CELL ? "cell" : "command");
                cop_reply_error(r, err ? err : &none);
                return;
        }
        r->state = strdup(id);
        r->state_free = free_id;
        cop_stream_record(r, kind, cop_request_param(r, 0), id, 0, true);
}

/* -- feeds -------------------------------------------------------------------------------------------------------- */

struct cop_feed {
        unsigned refs;               /* the stream and the handler */
        struct cop_request *request; /* borrowed; NULL when the stream is over */
        struct cop_buf queue;
        uint64_t seq;
        bool ended;
};

static void feed_unref(struct cop_feed *f)
{
        if (--f->refs > 0)
                return;
        cop_buf_done(&f->queue);
        free(f);
}

static ssize_t feed_read(void *source, char *buf, size_t n)
{
        struct cop_feed *f = source;
        size_t len = f->queue.len < n ? f->queue.len : n;

        if (len == 0)
                return f->ended ? 0 : -EAGAIN;
        memcpy(buf, f->queue.data, len);
        cop_buf_consume(&f->queue, len);
        return (ssize_t)len;
}

static void feed_close(void *source)
{
        struct cop_feed *f = source;

        f->request = NULL;
        feed_unref(f);
}

struct cop_feed *cop_stream_feed(struct cop_request *r, enum cop_accept format)
{
        struct stream *st = stream_new(r, format, 0);
        struct cop_feed *f = calloc(1, sizeof(*f));

        if (!st || !f) {
                free(f);
                if (st)
                        stream_free(st);
                struct cop_error err;
                cop_error_errno(&err, ENOMEM, "stream");
                cop_reply_error(r, &err);
                return NULL;
        }
        *f = (struct cop_feed){.refs = 2, .request = r, .queue = COP_BUF(2 * FEED_MAX)};
        st->lines = (struct lines){.read = feed_read, .close = feed_close, .source = f};
        reply(r, st, format);
        return f;
}

void cop_feed_add(struct cop_feed *f, json_t *event, bool must)
{
        char head[40];

        if (!f->request || f->ended || (f->queue.len > FEED_MAX && !must))
                return;
        char *text = json_dumps(event, JSON_COMPACT);
        if (!text)
                return;
        /* seq goes first, where readers look for it. */
        int n = snprintf(head, sizeof(head), "{\"seq\":%llu%s", (unsigned long long)++f->seq,
                         json_object_size(event) ? "," : "");
        size_t before = f->queue.len;
        if (cop_buf_add(&f->queue, head, (size_t)n) < 0 || cop_buf_adds(&f->queue, text + 1) < 0 ||
            cop_buf_addc(&f->queue, '\n') < 0)
                f->queue.len = before;
        free(text);
        cop_request_wake(f->request);
}

void cop_feed_end(struct cop_feed *f)
{
        f->ended = true;
        if (f->request)
                cop_request_wake(f->request);
        feed_unref(f);
}
