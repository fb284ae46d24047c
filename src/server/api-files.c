/* /api/sandboxes/{sb}/files: operations without data, and downloads and uploads of any size in constant memory.
 *
 * Download: the reply's source reads from the engine's stream when the client's socket takes bytes, and waits (-EAGAIN) when the
 * sandbox is slower.  Upload: the other way round; while the sandbox does not take bytes the client's connection is suspended,
 * so the kernel's socket buffers are all that fills up.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fields.h"
#include "request.h"
#include "sandbox/wire.h"

/* State of a request that moves data. */
struct transfer {
        struct cop_file_params params; /* strings borrowed from the request */
        struct cop_range range;
        bool partial;
        bool tar;
        struct cop_file_stream *stream; /* owned while uploading */
};

static int need_path(struct cop_request *r, struct cop_file_params *p, struct cop_error *err)
{
        int k = cop_query_str(&r->uri, "path", &p->path, err);

        if (k == 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "query parameter \"path\" is missing");
        return k < 0 ? k : cop_query_str(&r->uri, "user", &p->user, err);
}

static int query_flag(struct cop_request *r, const char *name, unsigned flag, struct cop_file_params *p,
                      struct cop_error *err)
{
        bool on = false;
        int k = cop_query_bool(&r->uri, name, &on, err);

        if (k >= 0 && on)
                p->flags |= flag;
        return k;
}

static void do_simple(struct cop_request *r, const struct cop_file_params *p)
{
        cop_file_do(r->engine, cop_request_param(r, 0), p, cop_request_to(r), &r->op);
}

static void stat_file(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", "sha256", "nofollow", NULL};
        struct cop_file_params p = {.op = COP_FILE_STAT};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &p, &err) < 0 ||
            query_flag(r, "sha256", COP_FILE_SHA256, &p, &err) < 0 ||
            query_flag(r, "nofollow", COP_FILE_NOFOLLOW, &p, &err) < 0)
                cop_reply_error(r, &err);
        else
                do_simple(r, &p);
}

static void list(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", "depth", "limit", NULL};
        struct cop_file_params p = {.op = COP_FILE_LIST};
        struct cop_error err = COP_ERROR_NULL;
        uint64_t depth = 1, limit = 10000;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &p, &err) < 0 ||
            cop_query_u64(&r->uri, "depth", 1, 64, &depth, &err) < 0 ||
            cop_query_u64(&r->uri, "limit", 1, 100000, &limit, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        p.depth = (unsigned)depth;
        p.count = (unsigned)limit;
        do_simple(r, &p);
}

static void remove_file(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", "recursive", NULL};
        struct cop_file_params p = {.op = COP_FILE_REMOVE};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &p, &err) < 0 ||
            query_flag(r, "recursive", COP_FILE_RECURSIVE, &p, &err) < 0)
                cop_reply_error(r, &err);
        else
                do_simple(r, &p);
}

static void make_folder(struct cop_request *r)
{
        static const char *const fields[] = {"path", "mode", "parents", "user", NULL};
        struct cop_file_params p = {.op = COP_FILE_MKDIR};
        struct cop_error err = COP_ERROR_NULL;
        bool parents = false;

        if (cop_json_check_keys(r->json, fields, &err) < 0 || cop_field_required(r->json, "path", &p.path, &err) < 0 ||
            cop_field_mode(r->json, "mode", &p.mode, &err) < 0 ||
            cop_json_get_bool(r->json, "parents", &parents, &err) < 0 ||
            cop_field_text(r->json, "user", &p.user, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        p.flags = parents ? COP_FILE_PARENTS : 0;
        r->success = 201;
        do_simple(r, &p);
}

static void move(struct cop_request *r)
{
        static const char *const fields[] = {"from", "to", "overwrite", "user", NULL};
        struct cop_file_params p = {.op = COP_FILE_MOVE};
        struct cop_error err = COP_ERROR_NULL;
        bool overwrite = false;

        if (cop_json_check_keys(r->json, fields, &err) < 0 || cop_field_required(r->json, "from", &p.path, &err) < 0 ||
            cop_field_required(r->json, "to", &p.path2, &err) < 0 ||
            cop_json_get_bool(r->json, "overwrite", &overwrite, &err) < 0 ||
            cop_field_text(r->json, "user", &p.user, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        p.flags = overwrite ? COP_FILE_OVERWRITE : 0;
        do_simple(r, &p);
}

/* -- out of the sandbox ------------------------------------------------------------------------------------------- */

static void transfer_free(struct cop_request *r)
{
        struct transfer *t = r->state;

        if (!t)
                return;
        cop_file_stream_close(t->stream);
        free(t);
}

/* Called on the connection's end, while r may live on: an unfinished write must not go on. */
static void transfer_gone(struct cop_request *r)
{
        struct transfer *t = r->state;

        t->stream = cop_file_stream_close(t->stream);
}

static struct transfer *transfer_new(struct cop_request *r, unsigned op)
{
        struct transfer *t = calloc(1, sizeof(*t));
        struct cop_error err;

        if (!t) {
                cop_error_errno(&err, ENOMEM, "transfer");
                cop_reply_error(r, &err);
                return NULL;
        }
        t->params.op = op;
        t->tar = op == COP_FILE_TAR || op == COP_FILE_UNTAR;
        r->state = t;
        r->state_free = transfer_free;
        r->on_gone = transfer_gone;
        return t;
}

static void on_more(void *userdata)
{
        cop_request_wake(userdata);
}

static ssize_t source_read(void *source, char *buf, size_t n)
{
        return cop_file_stream_read(source, buf, n);
}

static void source_close(void *source)
{
        cop_file_stream_close(source);
}

/* The version of a file for If-Range: time and size, as a strong tag (writes of ours are atomic). */
static void etag_of(json_t *file, char buf[static 64])
{
        json_t *mtime = json_object_get(file, "mtime");

        snprintf(buf, 64, "\"%s-%llx\"", json_is_string(mtime) ? json_string_value(mtime) : "",
                 (unsigned long long)json_integer_value(json_object_get(file, "size")));
}

static void file_headers(struct cop_request *r, json_t *file, const struct transfer *t, uint64_t size)
{
        char etag[64];

        cop_reply_header(r, "X-Content-Type-Options", "nosniff");
        if (t->tar)
                return;
        etag_of(file, etag);
        cop_reply_header(r, "Accept-Ranges", "bytes");
        cop_reply_header(r, "ETag", "%s", etag);
        if (t->partial)
                cop_reply_header(r, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)t->range.first,
                                 (unsigned long long)(t->range.first + t->range.length - 1), (unsigned long long)size);
}

static void opened_read(json_t *file, struct cop_file_stream *stream, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;
        struct cop_body_source source = {.read = source_read, .close = source_close, .source = stream};
        json_t *size_value = json_object_get(file, "size");

        if (!cop_request_done(r)) {
                cop_file_stream_close(stream);
                return;
        }
        struct transfer *t = r->state;
        if (err) {
                cop_reply_error(r, err);
                return;
        }
        uint64_t size = json_is_integer(size_value) && json_integer_value(size_value) >= 0 && !t->tar
                                ? (uint64_t)json_integer_value(size_value)
                                : UINT64_MAX;
        uint64_t length = size;
        if (t->partial) {
                /* The file may have shrunk since it was looked at. */
                if (t->range.first >= size) {
                        struct cop_error gone;
                        cop_error_set(&gone, ERANGE, COP_ERR_range_invalid,
                                      "the file became shorter than the range while it was opened");
                        cop_file_stream_close(stream);
                        cop_reply_error(r, &gone);
                        return;
                }
                if (t->range.length > size - t->range.first)
                        t->range.length = size - t->range.first;
                length = t->range.length;
        }
        file_headers(r, file, t, size);
        cop_reply_source(r, t->partial ? 206 : 200, t->tar ? "application/x-tar" : "application/octet-stream", source,
                         length);
}

static void start_read(struct cop_request *r)
{
        struct transfer *t = r->state;

        cop_file_read(r->engine, cop_request_param(r, 0), &t->params, t->partial ? t->range.first : 0,
                      t->partial ? t->range.length : 0, opened_read, on_more, cop_request_ref(r), &r->op);
}

static bool if_range_holds(struct cop_request *r, json_t *file)
{
        const char *wanted = cop_request_header(r, "If-Range");
        char etag[64];

        if (!wanted)
                return true;
        etag_of(file, etag);
        return strcmp(wanted, etag) == 0;
}

/* HEAD, or the size for a Range. */
static void looked(json_t *file, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;
        struct cop_error bad = COP_ERROR_NULL;

        if (!cop_request_done(r))
                return;
        struct transfer *t = r->state;
        uint64_t size = (uint64_t)json_integer_value(json_object_get(file, "size"));
        const char *type = json_string_value(json_object_get(file, "type"));
        if (!err && (!type || strcmp(type, "file") != 0)) {
                cop_error_set(&bad, EINVAL, COP_ERR_file_type, "%s is a %s, not a file", t->params.path,
                              type ? type : "thing");
                err = &bad;
        }
        int k = 0;
        if (!err && if_range_holds(r, file) &&
            (k = cop_range_parse(cop_request_header(r, "Range"), size, &t->range, &bad)) < 0) {
                cop_reply_header(r, "Content-Range", "bytes */%llu", (unsigned long long)size);
                err = &bad;
        }
        if (err) {
                cop_reply_error(r, err);
                return;
        }
        t->partial = k > 0;
        if (!r->head) {
                start_read(r);
                return;
        }
        /* A source that is never read: the library needs the length only. */
        file_headers(r, file, t, size);
        cop_reply_source(r, t->partial ? 206 : 200, "application/octet-stream",
                         (struct cop_body_source){.read = source_read, .close = source_close, .source = NULL},
                         t->partial ? t->range.length : size);
}

static void download(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", NULL};
        struct transfer *t = transfer_new(r, COP_FILE_READ);
        struct cop_error err = COP_ERROR_NULL;

        if (!t)
                return;
        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &t->params, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        if (!r->head && !cop_request_header(r, "Range")) {
                start_read(r);
                return;
        }
        struct cop_file_params look = {.op = COP_FILE_STAT, .path = t->params.path, .user = t->params.user};
        cop_file_do(r->engine, cop_request_param(r, 0), &look, cop_request_to_fn(r, looked, NULL), &r->op);
}

static void download_tar(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", NULL};
        struct transfer *t = transfer_new(r, COP_FILE_TAR);
        struct cop_error err = COP_ERROR_NULL;

        if (!t)
                return;
        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &t->params, &err) < 0)
                cop_reply_error(r, &err);
        else
                start_read(r);
}

/* -- into the sandbox --------------------------------------------------------------------------------------------- */

static ssize_t sink_write(struct cop_request *r, const char *data, size_t n)
{
        struct transfer *t = r->state;

        return t->stream ? cop_file_stream_write(t->stream, data, n) : -EPIPE;
}

static void sink_end(struct cop_request *r)
{
        struct transfer *t = r->state;

        if (t->stream)
                cop_file_stream_finish(t->stream);
}

static void opened_write(json_t *file, struct cop_file_stream *stream, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;
        struct transfer *t = r->state;

        /* `written` follows in any case and gives the reference back. */
        if (r->gone || err) {
                cop_file_stream_close(stream);
                if (err)
                        cop_reply_error(r, err);
                return;
        }
        t->stream = stream;
        cop_request_accept_body(r);
}

static void start_write(struct cop_request *r)
{
        struct transfer *t = r->state;

        r->sink = (struct cop_sink){.write = sink_write, .end = sink_end};
        cop_file_write(r->engine, cop_request_param(r, 0), &t->params, r->content_length, opened_write, on_more,
                       cop_request_to(r), &r->op);
}

static void upload(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", "mode", "parents", "exclusive", "sha256", NULL};
        struct transfer *t = transfer_new(r, COP_FILE_WRITE);
        struct cop_error err = COP_ERROR_NULL;

        if (!t)
                return;
        t->params.flags = COP_FILE_ATOMIC;
        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &t->params, &err) < 0 ||
            cop_query_mode(&r->uri, "mode", &t->params.mode, &err) < 0 ||
            query_flag(r, "parents", COP_FILE_PARENTS, &t->params, &err) < 0 ||
            query_flag(r, "exclusive", COP_FILE_EXCLUSIVE, &t->params, &err) < 0 ||
            query_flag(r, "sha256", COP_FILE_SHA256, &t->params, &err) < 0)
                cop_reply_error(r, &err);
        else
                start_write(r);
}

static void upload_tar(struct cop_request *r)
{
        static const char *const names[] = {"path", "user", NULL};
        struct transfer *t = transfer_new(r, COP_FILE_UNTAR);
        struct cop_error err = COP_ERROR_NULL;

        if (!t)
                return;
        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || need_path(r, &t->params, &err) < 0)
                cop_reply_error(r, &err);
        else
                start_write(r);
}

const struct cop_route cop_api_files[] = {
        {"GET", "/api/sandboxes/{sb}/files", COP_AUTH_TOKEN, COP_BODY_NONE, 0, download},
        {"PUT", "/api/sandboxes/{sb}/files", COP_AUTH_TOKEN, COP_BODY_RAW, 0, upload},
        {"DELETE", "/api/sandboxes/{sb}/files", COP_AUTH_TOKEN, COP_BODY_NONE, 0, remove_file},
        {"GET", "/api/sandboxes/{sb}/files/stat", COP_AUTH_TOKEN, COP_BODY_NONE, 0, stat_file},
        {"GET", "/api/sandboxes/{sb}/files/list", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"POST", "/api/sandboxes/{sb}/files/mkdir", COP_AUTH_TOKEN, COP_BODY_JSON, 0, make_folder},
        {"POST", "/api/sandboxes/{sb}/files/move", COP_AUTH_TOKEN, COP_BODY_JSON, 0, move},
        {"GET", "/api/sandboxes/{sb}/files/tar", COP_AUTH_TOKEN, COP_BODY_NONE, 0, download_tar},
        {"PUT", "/api/sandboxes/{sb}/files/tar", COP_AUTH_TOKEN, COP_BODY_RAW, 0, upload_tar},
        {0},
};
