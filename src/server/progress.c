#include "progress.h"

#include <stdlib.h>

#include "stream.h"

struct events {
        struct cop_feed *feed; /* owned */
        const char *key;
};

static void on_progress(json_t *event, void *userdata)
{
        struct cop_request *r = userdata;
        struct events *events = r->state;
        _cleanup_json_ json_t *line = NULL;

        if (r->gone || !events)
                return;
        line = json_pack("{s:s}", "type", "progress");
        json_object_update(line, event);
        cop_feed_add(events->feed, line, false);
}

static void events_free(struct cop_request *r)
{
        struct events *events = r->state;

        if (events)
                cop_feed_end(events->feed);
        free(events);
        r->state = NULL;
}

static void on_done(json_t *result, const struct cop_error *err, void *userdata)
{
        struct cop_request *r = userdata;
        struct events *events = r->state;
        _cleanup_json_ json_t *line = NULL;

        if (!events) {
                cop_request_done(r);
                return;
        }
        if (err) {
                line = json_pack("{s:s}", "type", "fault");
                _cleanup_json_ json_t *error = cop_error_json(err);
                json_object_update(line, error);
        } else {
                line = json_pack("{s:s,s:O}", "type", "end", events->key, result);
        }
        if (line)
                cop_feed_add(events->feed, line, true);
        events_free(r);
        cop_request_done(r);
}

bool cop_progress_to(struct cop_request *r, const char *key, struct cop_op_to *ret)
{
        enum cop_accept format = cop_accept_parse(cop_request_header(r, "Accept"), COP_ACCEPT_JSON);
        _cleanup_json_ json_t *start = NULL;

        if (format == COP_ACCEPT_JSON) {
                *ret = cop_request_to(r);
                return true;
        }
        struct events *events = calloc(1, sizeof(*events));
        if (!events) {
                struct cop_error err;
                cop_error_errno(&err, ENOMEM, "stream");
                cop_reply_error(r, &err);
                return false;
        }
        events->key = key;
        events->feed = cop_stream_feed(r, format);
        if (!events->feed) {
                free(events);
                return false;
        }
        r->state = events;
        r->state_free = events_free;
        start = json_pack("{s:s}", "type", "start");
        cop_feed_add(events->feed, start, true);
        *ret = cop_request_to_fn(r, on_done, on_progress);
        return true;
}
