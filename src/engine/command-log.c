/* The log of a command: frames that the keeper wrote (sandbox/wire.h), read for results and as NDJSON.
 *
 * Theory of operation
 *
 * A log is read frame by frame from the file; a frame that is not whole yet counts as not there.  While the command runs,
 * the reader waits at the end of the file until command.c calls cop_record_wake.
 *
 * NDJSON: seq 1 is the start; frame n of the file has seq n + 1, so that `after` means the same in every reading, also
 * when a frame gives no line of its own.  A character that was cut by the keeper's read is put together again: its first
 * bytes (at most 3) are carried over to the next frame of the stream.  A frame with bytes that are no UTF-8 travels as
 * base64, whole.  What background processes wrote after the command ended is "late".
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "engine/command.h"
#include "sandbox/wire.h"

#define FRAME_MAX 65536
#define HEADER_SIZE 8
#define CHUNK (256 * 1024)
#define LINE_MAX (1u << 20) /* a frame of control characters, escaped, is 6 times as long */

/* -- frames ------------------------------------------------------------------------------------------------------------ */

struct frames {
        int fd;          /* owned; -EBADF: there is no log */
        uint64_t offset; /* in the file, of the next frame */
        char *buf;       /* owned */
        size_t pos, len;
};

static int frames_open(struct frames *f, int logs_fd, const char *id, struct cop_error *err)
{
        char name[COP_ID_MAX + 8];
        uint32_t header[2];

        *f = (struct frames){.fd = -EBADF, .offset = HEADER_SIZE};
        int r = cop_path_format(name, sizeof(name), "%s.log", id);
        f->fd = r < 0 ? r : openat(logs_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (f->fd < 0 && errno == ENOENT)
                return 0; /* it could not be started, or its log is no longer kept */
        if (f->fd < 0)
                return cop_error_errno(err, errno, "opening the log of %s", id);
        if (pread(f->fd, header, sizeof(header), 0) != sizeof(header) || header[0] != COP_LOG_MAGIC) {
                f->fd = cop_close(f->fd);
                return cop_error_set(err, EBADMSG, COP_ERR_io_error, "the log of %s is damaged", id);
        }
        f->buf = malloc(CHUNK);
        if (!f->buf) {
                f->fd = cop_close(f->fd);
                return cop_error_errno(err, ENOMEM, "the log of %s", id);
        }
        return 0;
}

static void frames_done(struct frames *f)
{
        f->fd = cop_close(f->fd);
        free(TAKE_PTR(f->buf));
}

/* More of the file behind what is left in the buffer: false when there is none. */
static bool fill(struct frames *f)
{
        memmove(f->buf, f->buf + f->pos, f->len - f->pos);
        f->len -= f->pos;
        f->pos = 0;
        ssize_t n = pread(f->fd, f->buf + f->len, CHUNK - f->len, (off_t)(f->offset + f->len));
        if (n > 0)
                f->len += (size_t)n;
        return n > 0;
}

/* 1 with a whole frame (data is borrowed until the next call), 0 when there is none yet, -EBADMSG. */
static int frames_next(struct frames *f, struct cop_log_frame *ret, const char **ret_data)
{
        if (f->fd < 0)
                return 0;
        while (f->len - f->pos < sizeof(*ret))
                if (!fill(f))
                        return 0;
        memcpy(ret, f->buf + f->pos, sizeof(*ret));
        if (ret->stream < 1 || ret->stream > 3 || ret->length > FRAME_MAX || (ret->stream == 3 && ret->length != 8))
                return -EBADMSG;
        while (f->len - f->pos < sizeof(*ret) + ret->length)
                if (!fill(f))
                        return 0;
        *ret_data = f->buf + f->pos + sizeof(*ret);
        f->pos += sizeof(*ret) + ret->length;
        f->offset += sizeof(*ret) + ret->length;
        return 1;
}

int cop_command_logs_open(struct cop_engine *e, const char *sandbox_id)
{
        char path[4200];

        if (cop_path_format(path, sizeof(path), "%s/sandboxes/%s/logs", e->home, sandbox_id) < 0)
                return -ENAMETOOLONG;
        return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* -- results ------------------------------------------------------------------------------------------------------------- */

/* The head takes what comes first, the tail always holds the last tail_max bytes; it is moved only when twice that came. */
static int keep(struct cop_command_stream *s, const char *data, size_t n)
{
        size_t part = MIN_OF(n, s->head_max - s->head_len);

        s->bytes += n;
        if (part > 0) {
                char *head = realloc(s->head, s->head_len + part);
                if (!head)
                        return -ENOMEM;
                memcpy(head + s->head_len, data, part);
                s->head = head;
                s->head_len += part;
                data += part;
                n -= part;
        }
        if (n > s->tail_max) {
                data += n - s->tail_max;
                n = s->tail_max;
        }
        if (s->tail_len + n > 2 * s->tail_max) {
                memmove(s->tail, s->tail + s->tail_len - s->tail_max, s->tail_max);
                s->tail_len = s->tail_max;
        }
        if (s->tail_len + n > s->tail_allocated) {
                size_t want = MIN_OF(2 * s->tail_max, 2 * (s->tail_len + n));
                char *tail = realloc(s->tail, want);
                if (!tail)
                        return -ENOMEM;
                s->tail = tail;
                s->tail_allocated = want;
        }
        if (n > 0)
                memcpy(s->tail + s->tail_len, data, n);
        s->tail_len += n;
        return 0;
}

void cop_command_output_done(struct cop_command_output *o)
{
        for (int i = 0; i < 2; i++) {
                free(TAKE_PTR(o->streams[i].head));
                free(TAKE_PTR(o->streams[i].tail));
        }
}

int cop_command_output_read(int logs_fd, const char *id, uint64_t size, size_t output_max,
                            struct cop_command_output *ret, struct cop_error *err)
{
        __attribute__((cleanup(frames_done))) struct frames f;
        struct cop_log_frame frame;
        const char *data;
        int r;

        *ret = (struct cop_command_output){0};
        for (int i = 0; i < 2; i++)
                ret->streams[i].head_max = ret->streams[i].tail_max = output_max / 2;
        r = frames_open(&f, logs_fd, id, err);
        if (r < 0)
                return r;
        while (f.offset < size && (r = frames_next(&f, &frame, &data)) > 0) {
                if (frame.stream == 3)
                        memcpy(&ret->dropped, data, sizeof(ret->dropped));
                else if (keep(&ret->streams[frame.stream - 1], data, frame.length) < 0)
                        return cop_error_errno(err, ENOMEM, "the output of %s", id);
        }
        for (int i = 0; i < 2; i++) {
                struct cop_command_stream *s = &ret->streams[i];
                if (s->tail_len > s->tail_max) {
                        memmove(s->tail, s->tail + s->tail_len - s->tail_max, s->tail_max);
                        s->tail_len = s->tail_max;
                }
        }
        return r < 0 ? cop_error_set(err, EBADMSG, COP_ERR_io_error, "the log of %s is damaged", id) : 0;
}

json_t *cop_command_output_text(const struct cop_command_output *o, unsigned i, uint64_t total, json_t **truncated)
{
        const struct cop_command_stream *s = &o->streams[i];
        size_t head = s->head_len, tail = s->tail_len, skip = 0;
        _cleanup_buf_ struct cop_buf text = COP_BUF(SIZE_MAX / 4);

        /* When the log itself ran full, its last bytes are not the command's last ones: no tail. */
        if (total > s->bytes)
                tail = 0;
        if (total > head + tail) {
                head = cop_utf8_cut(s->head, head);
                while (skip < 3 && skip < tail && ((unsigned char)s->tail[skip] & 0xc0) == 0x80)
                        skip++;
                tail -= skip;
        }
        uint64_t dropped = total - MIN_OF(total, (uint64_t)(head + tail));
        int r = cop_buf_add(&text, s->head, head);
        if (r == 0 && dropped > 0)
                r = cop_buf_addf(&text, "\n[… %llu bytes left out …]\n", (unsigned long long)dropped);
        if (r == 0)
                r = cop_buf_add(&text, s->tail ? s->tail + skip : NULL, tail);
        if (r == 0 && dropped > 0) {
                if (!*truncated)
                        *truncated = json_object();
                json_object_set_new(*truncated, i ? "stderr" : "stdout",
                                    json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)total, "kept_head",
                                              (json_int_t)head, "kept_tail", (json_int_t)tail, "dropped",
                                              (json_int_t)dropped));
        }
        return r < 0 ? NULL : cop_json_foreign_string(text.data ? text.data : "", text.len);
}

/* -- NDJSON ----------------------------------------------------------------------------------------------------------------- */

enum stage {
        STAGE_START,
        STAGE_FRAMES,
        STAGE_REST, /* characters never completed, the truncation mark */
        STAGE_END,
        STAGE_DONE,
};

struct lines {
        struct cop_engine *engine;   /* borrowed */
        struct cop_command_row *row; /* owned; read anew when the command has ended */
        struct frames frames;
        enum stage stage;
        bool follow, ended;
        unsigned told; /* streams of the summary, when there is no log */
        uint64_t seq, after, dropped;
        char carry[2][4];
        size_t carry_len[2];
        struct cop_buf line; /* made, not delivered yet */
        size_t delivered;
};

static void lines_close(void *data)
{
        struct lines *l = data;

        if (!l)
                return;
        frames_done(&l->frames);
        cop_command_row_free(l->row);
        cop_buf_done(&l->line);
        free(l);
}

/* Stolen event; counts, and makes the line when it lies behind `after`. */
static int add_line(struct lines *l, json_t *event)
{
        int r = event ? 0 : -ENOMEM;

        l->seq++;
        if (r == 0 && l->seq > l->after) {
                json_object_set_new(event, "seq", json_integer((json_int_t)l->seq));
                _cleanup_free_ char *text = json_dumps(event, JSON_COMPACT);
                cop_buf_clear(&l->line);
                l->delivered = 0;
                r = text ? cop_buf_adds(&l->line, text) : -ENOMEM;
                if (r == 0)
                        r = cop_buf_addc(&l->line, '\n');
        }
        json_decref(event);
        return r;
}

static json_t *output_event(const struct lines *l, unsigned stream, const char *data, size_t n, usec_t at, bool text)
{
        const char *type = stream ? "stderr" : "stdout";
        bool late = l->ended && l->row->log_bytes && l->frames.offset > l->row->log_bytes;
        double ms = at > l->row->started_at ? (double)(at - l->row->started_at) / 1000 : 0;
        json_t *event = json_pack("{s:s, s:f}", "type", late ? "late" : type, "time_ms", ms);

        if (late)
                json_object_set_new(event, "stream", json_string(type));
        if (text) {
                json_object_set_new(event, "text", json_stringn(data, n));
        } else {
                _cleanup_free_ char *base64 = cop_base64_encode(data, n);
                json_object_set_new(event, "base64", json_string(base64 ? base64 : ""));
        }
        return event;
}

static int add_frame(struct lines *l, const struct cop_log_frame *frame, const char *data)
{
        unsigned i = frame->stream - 1u;
        _cleanup_buf_ struct cop_buf all = COP_BUF(FRAME_MAX + 4);

        if (frame->stream == 3) {
                memcpy(&l->dropped, data, sizeof(l->dropped)); /* told at the end, when it no longer grows */
                l->seq++;
                return 0;
        }
        if (cop_buf_add(&all, l->carry[i], l->carry_len[i]) < 0 || cop_buf_add(&all, data, frame->length) < 0)
                return -ENOMEM;
        size_t whole = cop_utf8_cut(all.data, all.len);
        bool text = cop_utf8_valid(all.data, whole);
        if (!text)
                whole = all.len;
        /* What cannot begin a character is not waited for. */
        if (whole < all.len && ((unsigned char)all.data[whole] < 0xc2 || (unsigned char)all.data[whole] > 0xf4)) {
                whole = all.len;
                text = false;
        }
        l->carry_len[i] = all.len - whole;
        memcpy(l->carry[i], all.data + whole, l->carry_len[i]);
        if (whole == 0) {
                l->seq++;
                return 0;
        }
        return add_line(l, output_event(l, i, all.data, whole, frame->time, text));
}

/* Whether no more output will count as the command's own. */
static bool has_ended(struct lines *l)
{
        struct cop_sandbox *sb = NULL;
        struct cop_command *c = NULL;

        if (cop_sandbox_find(l->engine, l->row->sandbox_id, &sb, NULL) == 0)
                c = cop_command_find_live(sb, l->row->id);
        /* One that is not in memory has ended, unless its sandbox is being taken over after a restart of the daemon. */
        if (c ? !c->exited : sb && sb->state == COP_SANDBOX_STARTING)
                return false;
        struct cop_command_row *row = NULL;
        if (cop_store_command_get(l->engine->store, l->row->sandbox_id, l->row->id, &row, NULL) == 0) {
                cop_command_row_free(l->row);
                l->row = row;
        }
        l->ended = true;
        return true;
}

static json_t *start_event(const struct lines *l)
{
        char stamp[COP_RFC3339_MAX];

        return json_pack("{s:s, s:s, s:s, s:I, s:s}", "type", "start", "command_id", l->row->id, "sandbox_id",
                         l->row->sandbox_id, "pid", (json_int_t)l->row->pid, "started_at",
                         cop_rfc3339(l->row->started_at, stamp));
}

/* A command whose log is not there (it never ran): what its row says. */
static int add_from_summary(struct lines *l)
{
        _cleanup_json_ json_t *view = cop_command_row_view(l->row, true);

        while (l->told < 2) {
                unsigned i = l->told++;
                json_t *text = json_object_get(view, i ? "stderr" : "stdout");
                if (json_string_length(text) > 0)
                        return add_line(l, json_pack("{s:s, s:O, s:f}", "type", i ? "stderr" : "stdout", "text", text,
                                                     "time_ms", 0.0));
        }
        l->stage = STAGE_END;
        return 0;
}

static int add_rest(struct lines *l)
{
        if (l->frames.fd < 0)
                return add_from_summary(l);
        for (unsigned i = 0; i < 2; i++) {
                size_t n = l->carry_len[i];
                l->carry_len[i] = 0;
                if (n > 0)
                        return add_line(l, output_event(l, i, l->carry[i], n, l->row->ended_at, false));
        }
        l->stage = STAGE_END;
        if (l->dropped == 0)
                return 0;
        return add_line(l, json_pack("{s:s, s:s, s:I}", "type", "truncated", "stream", "output", "dropped",
                                     (json_int_t)l->dropped));
}

static int add_end(struct lines *l)
{
        json_t *view = cop_command_row_view(l->row, false);

        l->stage = STAGE_DONE;
        return add_line(l, json_pack("{s:s, s:o}", "type", "end", "command", view));
}

/* One step: 0 (a line may be there now), -EAGAIN, other negative errno. */
static int advance(struct lines *l)
{
        struct cop_log_frame frame;
        const char *data;
        int r;

        switch (l->stage) {
        case STAGE_START:
                l->stage = STAGE_FRAMES;
                return add_line(l, start_event(l));
        case STAGE_FRAMES:
                r = frames_next(&l->frames, &frame, &data);
                if (r > 0)
                        return add_frame(l, &frame, data);
                if (r < 0)
                        return r;
                if (!l->ended && has_ended(l))
                        return 0; /* once more: what came between the two looks */
                if (l->ended)
                        l->stage = STAGE_REST;
                else if (!l->follow)
                        l->stage = STAGE_DONE;
                return l->ended || !l->follow ? 0 : -EAGAIN;
        case STAGE_REST:
                return add_rest(l);
        default:
                return add_end(l);
        }
}

static ssize_t lines_read(void *data, char *buf, size_t n)
{
        struct lines *l = data;
        size_t got = 0;

        while (got < n) {
                size_t left = l->line.len - l->delivered;
                if (left > 0 && (got == 0 || left <= n - got)) {
                        size_t part = MIN_OF(left, n - got);
                        memcpy(buf + got, l->line.data + l->delivered, part);
                        l->delivered += part;
                        got += part;
                        continue;
                }
                if (left > 0 || l->stage == STAGE_DONE)
                        break;
                int r = advance(l);
                if (r < 0)
                        return got > 0 ? (ssize_t)got : r;
        }
        return (ssize_t)got;
}

int cop_command_record_open(struct cop_engine *e, const char *ref, const char *pid_or_id, uint64_t after_seq,
                            bool follow, void (*more)(void *userdata), void *userdata, struct cop_record_reader **ret,
                            struct cop_error *err)
{
        static const struct cop_record_source source = {.read = lines_read, .close = lines_close};
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        int r = cop_store_sandbox_get(e->store, ref, &sandbox, err);

        if (r < 0)
                return r;
        struct lines *l = calloc(1, sizeof(*l));
        if (!l)
                return cop_error_errno(err, ENOMEM, "reader of %s", pid_or_id);
        *l = (struct lines){
                .engine = e, .follow = follow, .after = after_seq, .line.max = LINE_MAX, .frames.fd = -EBADF};
        r = cop_store_command_get(e->store, sandbox->id, pid_or_id, &l->row, err);
        _cleanup_close_ int logs_fd = cop_command_logs_open(e, sandbox->id);
        if (r == 0 && logs_fd >= 0)
                r = frames_open(&l->frames, logs_fd, l->row->id, err);
        if (r < 0) {
                lines_close(l);
                return r;
        }
        return cop_record_reader_new(e, l->row->id, &source, l, more, userdata, ret, err); /* closes l when it fails */
}
