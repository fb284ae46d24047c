#include "request.h"

#include <stdlib.h>

#include "http.h"

struct cop_request *cop_request_ref(struct cop_request *r)
{
        r->refs++;
        return r;
}

struct cop_request *cop_request_unref(struct cop_request *r)
{
        if (!r || --r->refs > 0)
                return NULL;
        if (r->state_free)
                r->state_free(r);
        cop_reply_done(&r->reply);
        cop_uri_done(&r->uri);
        json_decref(r->json);
        if (r->http) {
                cop_buf_done(&r->http->body);
                free(r->http);
        }
        free(r);
        return NULL;
}

const char *cop_request_header(struct cop_request *r, const char *name)
{
        if (!r->http->connection)
                return NULL;
        return MHD_lookup_connection_value(r->http->connection, MHD_HEADER_KIND, name);
}

static void done_reply(json_t *result, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;

        if (!cop_request_done(r))
                return;
        if (err)
                cop_reply_error(r, err);
        else
                cop_reply_json(r, r->success ? (unsigned)r->success : 200, result);
}

struct cop_op_to cop_request_to_fn(struct cop_request *r, cop_op_fn done, cop_progress_fn progress)
{
        return (struct cop_op_to){.done = done, .progress = progress, .userdata = cop_request_ref(r)};
}

struct cop_op_to cop_request_to(struct cop_request *r)
{
        return cop_request_to_fn(r, done_reply, NULL);
}

bool cop_request_done(struct cop_request *r)
{
        bool last = r->refs == 1;

        r->op = NULL;
        cop_request_unref(r);
        /* With only the operation's reference left the connection is over, and r is gone now. */
        return !last && !r->gone;
}

void cop_request_accept_body(struct cop_request *r)
{
        r->http->body_wanted = true;
        cop_request_wake(r);
}
