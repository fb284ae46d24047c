/* Nodes as streams: downloads and uploads of any size in constant memory, moved as in api-files.c. */
#include "fields.h"
#include "request.h"

static void on_more(void *userdata)
{
        cop_request_wake(userdata);
}

/* -- out ------------------------------------------------------------------------------------------------------------------ */

static ssize_t source_read(void *source, char *buf, size_t n)
{
        return cop_packing_read(source, buf, n);
}

static void source_close(void *source)
{
        cop_packing_close(source);
}

static void reply_pack(struct cop_request *r, struct cop_packing *pack)
{
        cop_reply_header(r, "X-Content-Type-Options", "nosniff");
        cop_reply_source(r, 200, "application/zstd",
                         (struct cop_body_source){.read = source_read, .close = source_close, .source = pack},
                         UINT64_MAX);
}

static void opened_pack(struct cop_packing *pack, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;

        if (!cop_request_done(r))
                cop_packing_close(pack);
        else if (err)
                cop_reply_error(r, err);
        else
                reply_pack(r, pack);
}

/* HEAD: a source that is never read. */
static void looked(json_t *node, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;

        if (!cop_request_done(r))
                return;
        if (err)
                cop_reply_error(r, err);
        else
                reply_pack(r, NULL);
}

static void pack(struct cop_request *r)
{
        static const char *const names[] = {NULL};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0)
                cop_reply_error(r, &err);
        else if (r->head)
                cop_node_get(r->engine, cop_request_param(r, 0), cop_request_to_fn(r, looked, NULL));
        else
                cop_node_pack(r->engine, cop_request_param(r, 0), opened_pack, on_more, cop_request_ref(r), &r->op);
}

/* -- in ------------------------------------------------------------------------------------------------------------------- */

static void unpack_free(struct cop_request *r)
{
        r->state = cop_packing_close(r->state);
}

static ssize_t sink_write(struct cop_request *r, const char *data, size_t n)
{
        return r->state ? cop_packing_write(r->state, data, n) : -EPIPE;
}

static void sink_end(struct cop_request *r)
{
        if (r->state)
                cop_packing_finish(r->state);
}

static void opened_unpack(struct cop_packing *pack, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;

        /* The end of the operation follows in any case and gives the reference back. */
        if (r->gone || err) {
                cop_packing_close(pack);
                return;
        }
        r->state = pack;
        cop_request_accept_body(r);
}

static void unpack(struct cop_request *r)
{
        static const char *const names[] = {"name", "files_only", NULL};
        struct cop_unpack_params p = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 || cop_query_str(&r->uri, "name", &p.name, &err) < 0 ||
            cop_query_bool(&r->uri, "files_only", &p.files_only, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        r->success = 201;
        r->state_free = unpack_free;
        r->on_gone = unpack_free;
        r->sink = (struct cop_sink){.write = sink_write, .end = sink_end};
        cop_node_unpack(r->engine, &p, opened_unpack, on_more, cop_request_to(r), &r->op);
}

const struct cop_route cop_api_packs[] = {
        {"GET", "/api/snapshots/{node}/pack", COP_AUTH_TOKEN, COP_BODY_NONE, 0, pack},
        {"POST", "/api/snapshots", COP_AUTH_TOKEN, COP_BODY_RAW, 0, unpack},
        {0},
};
