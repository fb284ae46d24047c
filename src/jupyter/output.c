#include "output.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "jupyter/decode.h"

void cop_decoded_output_done(struct cop_decoded_output *d)
{
        json_decref(d->content);
        json_decref(d->metadata);
        *d = (struct cop_decoded_output){0};
}

static int malformed(struct cop_error *err, const char *type, const char *what)
{
        return cop_error_set(err, EBADMSG, COP_ERR_bad_request, "malformed %s message: %s", type, what);
}

static int decode_stream(const struct cop_message *m, struct cop_decoded_output *d, struct cop_error *err)
{
        const char *name;
        char *text;

        if (cop_decode_stream(m->content.data, m->content.len, &name, &text, &d->output.text_len) == 1) {
                d->output.text = text;
        } else {
                int r = cop_message_content(m, &d->content, &d->repaired, err);
                if (r < 0)
                        return r;
                json_t *value = json_object_get(d->content, "text");
                name = json_string_value(json_object_get(d->content, "name"));
                if (!name || !json_is_string(value))
                        return malformed(err, m->type, "no name or text");
                d->output.text = json_string_value(value);
                d->output.text_len = json_string_length(value);
        }
        d->output.stream = strcmp(name, "stderr") == 0 ? COP_STREAM_STDERR : COP_STREAM_STDOUT;
        return 0;
}

static int decode_display(const struct cop_message *m, struct cop_decoded_output *d, struct cop_error *err)
{
        json_t *count = json_object_get(d->content, "execution_count");
        json_t *transient = json_object_get(d->content, "transient");

        d->output.data = json_object_get(d->content, "data");
        d->output.metadata = json_object_get(d->content, "metadata");
        d->output.display_id = json_string_value(json_object_get(transient, "display_id"));
        d->output.execution_count = json_is_integer(count) ? json_integer_value(count) : -1;
        if (!json_is_object(d->output.data))
                return malformed(err, m->type, "no data");
        if (!json_is_object(d->output.metadata)) {
                d->metadata = json_object();
                if (!d->metadata)
                        return cop_error_errno(err, ENOMEM, "kernel output");
                d->output.metadata = d->metadata;
        }
        return 0;
}

static int decode_error(struct cop_decoded_output *d, struct cop_error *err)
{
        const char *ename = json_string_value(json_object_get(d->content, "ename"));
        const char *evalue = json_string_value(json_object_get(d->content, "evalue"));

        d->output.ename = ename ? ename : "";
        d->output.evalue = evalue ? evalue : "";
        d->metadata = cop_output_traceback(json_object_get(d->content, "traceback"));
        d->output.traceback = d->metadata;
        return d->output.traceback ? 0 : cop_error_errno(err, ENOMEM, "kernel output");
}

json_t *cop_output_traceback(json_t *value)
{
        json_t *list = json_array(), *line;
        size_t i;

        if (!list)
                return NULL;
        json_array_foreach (value, i, line)
                if (json_is_string(line))
                        json_array_append(list, line);
        return list;
}

int cop_output_decode(const struct cop_message *m, struct cop_decoded_output *ret, struct cop_error *err)
{
        static const struct {
                const char *type;
                enum cop_output_kind kind;
        } types[] = {
                {"stream", COP_OUTPUT_STREAM},         {"display_data", COP_OUTPUT_DISPLAY},
                {"execute_result", COP_OUTPUT_RESULT}, {"update_display_data", COP_OUTPUT_UPDATE_DISPLAY},
                {"clear_output", COP_OUTPUT_CLEAR},    {"error", COP_OUTPUT_ERROR},
        };
        size_t i = 0;
        int r = 0;

        *ret = (struct cop_decoded_output){0};
        while (i < sizeof(types) / sizeof(types[0]) && strcmp(types[i].type, m->type) != 0)
                i++;
        if (i == sizeof(types) / sizeof(types[0]))
                return 0;
        ret->output.kind = types[i].kind;
        ret->output.time = cop_now(CLOCK_REALTIME);
        ret->output.execution_count = -1;
        if (ret->output.kind == COP_OUTPUT_STREAM) {
                r = decode_stream(m, ret, err);
        } else {
                r = cop_message_content(m, &ret->content, &ret->repaired, err);
                if (r >= 0 && ret->output.kind == COP_OUTPUT_CLEAR)
                        ret->output.wait = json_is_true(json_object_get(ret->content, "wait"));
                else if (r >= 0 && ret->output.kind == COP_OUTPUT_ERROR)
                        r = decode_error(ret, err);
                else if (r >= 0)
                        r = decode_display(m, ret, err);
        }
        if (r < 0) {
                cop_decoded_output_done(ret);
                return r;
        }
        return 1;
}
