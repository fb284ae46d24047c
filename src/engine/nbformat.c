#include "engine/nbformat.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

#define ENTRY_BYTES 64 /* of an id or update beyond its text */

int cop_nbformat_displays_init(struct cop_nbformat_displays *d)
{
        *d = (struct cop_nbformat_displays){.shown = json_object(), .updates = json_object()};
        return d->shown && d->updates ? 0 : -ENOMEM;
}

void cop_nbformat_displays_done(struct cop_nbformat_displays *d)
{
        json_decref(d->shown);
        json_decref(d->updates);
        *d = (struct cop_nbformat_displays){0};
}

static const char *text_of(json_t *object, const char *key, const char *otherwise)
{
        const char *text = json_string_value(json_object_get(object, key));

        return text ? text : otherwise;
}

static bool has_room(struct cop_nbformat_displays *d, size_t bytes)
{
        if (bytes > COP_NBFORMAT_DISPLAYS_MAX - d->bytes)
                return false;
        d->bytes += bytes;
        return true;
}

static void note_update(struct cop_nbformat_displays *d, const char *id, json_t *item, int64_t seq)
{
        json_t *data = json_object_get(item, "data"), *metadata = json_object_get(item, "metadata");

        /* What an earlier update of the same display took is not given back: the bound is on the work as well. */
        if (!has_room(d, ENTRY_BYTES + strlen(id) + json_dumpb(data, NULL, 0, 0) + json_dumpb(metadata, NULL, 0, 0)))
                return;
        json_object_set_new(d->updates, id,
                            json_pack("{s:O?, s:O?, s:I}", "data", data, "metadata", metadata, "seq", (json_int_t)seq));
}

void cop_nbformat_displays_note(struct cop_nbformat_displays *d, json_t *items, int64_t seq)
{
        json_t *item;
        size_t i;

        json_array_foreach (items, i, item) {
                const char *id = text_of(item, "display_id", NULL);
                if (!id)
                        continue;
                if (json_object_get(d->shown, id)) {
                        if (strcmp(text_of(item, "type", ""), "update") == 0)
                                note_update(d, id, item, seq);
                } else if (strcmp(text_of(item, "type", ""), "update") != 0 && has_room(d, ENTRY_BYTES + strlen(id))) {
                        json_object_set_new(d->shown, id, json_true());
                }
        }
}

/* -- one output -------------------------------------------------------------------------------------------------------- */

struct outputs {
        json_t *list;
        const char *stream; /* NULL: no text is waiting */
        struct cop_buf text;
        bool error;
};

/* A notebook has one output for what a stream said in a row. */
static void end_text(struct outputs *o)
{
        if (!o->stream)
                return;
        json_array_append_new(o->list,
                              json_pack("{s:s, s:s, s:o}", "output_type", "stream", "name", o->stream, "text",
                                        cop_json_foreign_string(o->text.data ? o->text.data : "", o->text.len)));
        cop_buf_clear(&o->text);
        o->stream = NULL;
}

static void add_text(struct outputs *o, const char *stream, json_t *item)
{
        json_t *text = json_object_get(item, "text");

        if (o->stream != stream)
                end_text(o);
        o->stream = stream;
        if (text)
                cop_buf_add(&o->text, json_string_value(text), json_string_length(text));
        else
                cop_buf_addf(&o->text, "\n[… %lld bytes left out …]\n",
                             (long long)json_integer_value(json_object_get(item, "dropped")));
}

/* application/json and application/….+json may hold anything. */
static bool is_json(const char *mime)
{
        size_t n = strlen(mime);

        return strncmp(mime, "application/", 12) == 0 &&
               (strcmp(mime + 12, "json") == 0 || (n >= 17 && strcmp(mime + n - 5, "+json") == 0));
}

static bool is_lines(json_t *value)
{
        json_t *line;
        size_t i;

        json_array_foreach (value, i, line)
                if (!json_is_string(line))
                        return false;
        return json_is_array(value);
}

static json_t *bundle(json_t *data)
{
        json_t *result = json_object(), *value;
        const char *mime;

        json_object_foreach (data, mime, value) {
                if (is_json(mime) || json_is_string(value) || is_lines(value)) {
                        json_object_set(result, mime, value);
                } else {
                        char *text = json_dumps(value, JSON_ENCODE_ANY);
                        if (text)
                                json_object_set_new(result, mime, json_string(text));
                        free(text);
                }
        }
        return result;
}

static json_t *metadata_of(json_t *object)
{
        json_t *metadata = json_object_get(object, "metadata");

        return json_is_object(metadata) ? json_incref(metadata) : json_object();
}

static void add_data(struct outputs *o, json_t *source, bool result, int64_t execution_count)
{
        json_t *output = json_pack("{s:s, s:o, s:o}", "output_type", result ? "execute_result" : "display_data", "data",
                                   bundle(json_object_get(source, "data")), "metadata", metadata_of(source));

        if (result)
                json_object_set_new(output, "execution_count",
                                    execution_count >= 0 ? json_integer(execution_count) : json_null());
        json_array_append_new(o->list, output);
}

static void add_error(struct outputs *o, json_t *error)
{
        json_t *traceback = json_array(), *line;
        size_t i;

        json_array_foreach (json_object_get(error, "traceback"), i, line)
                if (json_is_string(line))
                        json_array_append(traceback, line);
        json_array_append_new(o->list, json_pack("{s:s, s:s, s:s, s:o}", "output_type", "error", "ename",
                                                 text_of(error, "name", ""), "evalue", text_of(error, "value", ""),
                                                 "traceback", traceback));
        o->error = true;
}

static void add_rich(struct outputs *o, const struct cop_nbformat_displays *d, json_t *item, int64_t seq,
                     int64_t execution_count)
{
        const char *type = text_of(item, "type", ""), *id = text_of(item, "display_id", NULL);
        json_t *update = id ? json_object_get(d->updates, id) : NULL, *count = json_object_get(item, "execution_count");
        bool updated = update && json_integer_value(json_object_get(update, "seq")) >= seq;

        if (!json_is_object(json_object_get(item, "data")) || (updated && strcmp(type, "update") == 0))
                return;
        add_data(o, updated ? update : item, strcmp(type, "result") == 0,
                 json_is_integer(count) ? json_integer_value(count) : execution_count);
}

static void add_item(struct outputs *o, const struct cop_nbformat_displays *d, json_t *item, int64_t seq,
                     int64_t execution_count)
{
        const char *type = text_of(item, "type", ""), *stream = text_of(item, "stream", "stdout");

        if (strcmp(type, "stderr") == 0 || (strcmp(type, "truncated") == 0 && strcmp(stream, "stderr") == 0)) {
                add_text(o, "stderr", item);
        } else if (strcmp(type, "stdout") == 0 || strcmp(type, "truncated") == 0) {
                add_text(o, "stdout", item);
        } else {
                end_text(o);
                if (strcmp(type, "error") == 0)
                        add_error(o, item);
                else
                        add_rich(o, d, item, seq, execution_count);
        }
}

json_t *cop_nbformat_outputs(const struct cop_nbformat_displays *d, json_t *items, int64_t seq, json_t *error,
                             int64_t execution_count)
{
        struct outputs o = {.list = json_array(), .text = COP_BUF(SIZE_MAX / 4)};
        json_t *item;
        size_t i;

        json_array_foreach (items, i, item)
                add_item(&o, d, item, seq, execution_count);
        end_text(&o);
        cop_buf_done(&o.text);
        if (!o.error && json_is_object(error))
                add_error(&o, error);
        return o.list;
}
