#include "engine/pump.h"

#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "sandbox/wire.h"

#define CHUNK (64u << 10)
#define CHUNKS_A_TURN 16

struct pump {
        struct cop_engine *engine;
        char *path, *to_sandbox, *to_path; /* owned */
        struct cop_file_params to;
        struct cop_file_stream *reader, *writer; /* owned */
        struct cop_source *again;                /* owned: more than one turn's worth is there */
        char *chunk;                             /* owned */
        size_t at, len;                          /* of chunk: read and not yet written */
        uint64_t bytes, max;
        struct cop_error err; /* errnum != 0: why we gave up */
        cop_pump_fn fn;
        void *userdata;
};

static void pump_free(struct pump *p)
{
        cop_file_stream_close(p->reader);
        cop_file_stream_close(p->writer);
        cop_source_free(p->again);
        free(p->chunk);
        free(p->path);
        free(p->to_sandbox);
        free(p->to_path);
        free(p);
}

static void finish(struct pump *p, const struct cop_error *err)
{
        struct cop_error own = p->err.errnum ? p->err : err ? *err : COP_ERROR_NULL;
        bool failed = p->err.errnum || err;
        cop_pump_fn fn = p->fn;
        void *userdata = p->userdata;
        uint64_t bytes = p->bytes;

        pump_free(p);
        fn(bytes, failed ? &own : NULL, userdata);
}

/* The writer's operation ends with an error of its own; ours is told in its place. */
static void give_up(struct pump *p)
{
        p->again = cop_source_free(p->again);
        p->reader = cop_file_stream_close(p->reader);
        p->writer = cop_file_stream_close(p->writer);
}

/* 1: the chunk is written, 0: wait, or it is over. */
static int write_chunk(struct pump *p)
{
        while (p->at < p->len) {
                ssize_t n = cop_file_stream_write(p->writer, p->chunk + p->at, p->len - p->at);
                if (n < 0)
                        return 0; /* -EAGAIN: more is called.  Else the end of the operation tells what it was */
                p->at += (size_t)n;
        }
        return 1;
}

static int read_chunk(struct pump *p)
{
        char max[COP_SIZE_MAX];
        ssize_t n = cop_file_stream_read(p->reader, p->chunk, CHUNK);

        if (n == -EAGAIN)
                return 0;
        if (n == 0) {
                p->reader = cop_file_stream_close(p->reader);
                cop_file_stream_finish(p->writer);
                return 0;
        }
        p->at = 0;
        p->len = n > 0 ? (size_t)n : 0;
        p->bytes += p->len;
        if (n < 0)
                cop_error_set(&p->err, EIO, COP_ERR_io_error, "reading %.300s was cut off", p->path);
        else if (p->bytes > p->max)
                cop_error_set(&p->err, EFBIG, COP_ERR_payload_too_large,
                              "%.300s has more than the %s that can be taken", p->path, cop_format_size(p->max, max));
        if (!p->err.errnum)
                return 1;
        give_up(p);
        return 0;
}

static void on_again(struct cop_source *s, void *userdata)
{
        struct pump *p = userdata;

        cop_source_set_enabled(s, 0);
        for (int i = 0; i < CHUNKS_A_TURN && p->reader && p->writer; i++)
                if (!write_chunk(p) || !read_chunk(p))
                        return;
        if (p->reader && p->writer)
                cop_source_set_enabled(s, 1);
}

/* A stream is in the middle of something when it says that there is more. */
static void on_more(void *userdata)
{
        struct pump *p = userdata;

        if (p->again)
                cop_source_set_enabled(p->again, 1);
}

static void on_written(json_t *file, const struct cop_error *err, void *userdata)
{
        finish(userdata, err);
}

static void on_write_opened(json_t *file, struct cop_file_stream *stream, const struct cop_error *err, void *userdata)
{
        struct pump *p = userdata;

        if (err)
                return; /* the end of the operation follows */
        p->writer = stream;
        cop_source_set_enabled(p->again, 1);
}

static void on_read_opened(json_t *file, struct cop_file_stream *stream, const struct cop_error *err, void *userdata)
{
        struct pump *p = userdata;

        if (err) {
                finish(p, err);
                return;
        }
        p->reader = stream;
        cop_file_write(p->engine, p->to_sandbox, &p->to, UINT64_MAX, on_write_opened, on_more,
                       (struct cop_op_to){.done = on_written, .userdata = p}, NULL);
}

void cop_pump(struct cop_engine *e, const struct cop_pump_params *params, cop_pump_fn fn, void *userdata)
{
        struct pump *p = calloc(1, sizeof(*p));
        struct cop_error err;

        if (p) {
                *p = (struct pump){.engine = e, .to = params->to, .max = params->max, .fn = fn, .userdata = userdata};
                p->path = strdup(params->from.path);
                p->to_sandbox = strdup(params->to_sandbox);
                p->to.path = p->to_path = strdup(params->to.path);
                p->chunk = malloc(CHUNK);
        }
        if (!p || !p->path || !p->to_sandbox || !p->to_path || !p->chunk ||
            cop_loop_add_defer(e->loop, on_again, p, &p->again, &err) < 0) {
                if (p)
                        pump_free(p);
                cop_error_errno(&err, ENOMEM, "copying files");
                fn(0, &err, userdata);
                return;
        }
        cop_file_read(e, params->from_sandbox, &params->from, 0, 0, on_read_opened, on_more, p, NULL);
}
