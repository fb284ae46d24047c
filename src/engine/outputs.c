#include "engine/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/utf8.h"

#define CHUNK_MAX 65536 /* text items are merged up to this; the tail is dropped in such pieces or less */
#define ITEMS_MAX \
        8192 /* text items of one stream in head and in tail each: streams that alternate byte by byte cost no more */

enum zone {
        ZONE_HEAD,
        ZONE_TAIL,
        ZONE_RICH,
};

struct item {
        struct item *next, *prev;
        enum zone zone;
        enum cop_stream stream; /* 0 for rich ones */
        struct cop_buf text;    /* owned; streams */
        size_t start;           /* bytes of text that were trimmed away: moved past, not moved */
        json_t *object;         /* owned; rich ones, as it goes out */
        size_t size;            /* rich: bytes counted against the cap */
        double time_ms;
};

struct stream_state {
        uint64_t bytes; /* all that came */
        size_t head, tail;
        unsigned items[2];       /* by zone: head, tail */
        struct item *first_tail; /* where trimming goes on, so that it never walks over the head again */
        uint64_t dropped;
};

struct cop_outputs {
        struct item *first, *last;
        struct stream_state streams[3]; /* by enum cop_stream */
        size_t stream_max;
        usec_t started;
        size_t rich_count, rich_bytes;
        uint64_t rich_dropped;
        bool clear_next;
};

struct cop_outputs *cop_outputs_new(size_t stream_max, usec_t started)
{
        struct cop_outputs *o = calloc(1, sizeof(*o));

        if (!o)
                return NULL;
        o->stream_max = stream_max;
        o->started = started;
        return o;
}

static void remove_item(struct cop_outputs *o, struct item *item)
{
        if (item->prev)
                item->prev->next = item->next;
        else
                o->first = item->next;
        if (item->next)
                item->next->prev = item->prev;
        else
                o->last = item->prev;
        if (item->zone == ZONE_RICH) {
                o->rich_bytes -= item->size;
                o->rich_count--;
        } else if (item->stream) {
                o->streams[item->stream].items[item->zone]--;
        }
        cop_buf_done(&item->text);
        json_decref(item->object);
        free(item);
}

struct cop_outputs *cop_outputs_free(struct cop_outputs *o)
{
        if (!o)
                return NULL;
        while (o->first)
                remove_item(o, o->first);
        free(o);
        return NULL;
}

static struct item *append_item(struct cop_outputs *o, enum zone zone, double time_ms)
{
        struct item *item = calloc(1, sizeof(*item));

        if (!item)
                return NULL;
        item->zone = zone;
        item->time_ms = time_ms;
        item->text.max = 2 * CHUNK_MAX;
        item->prev = o->last;
        if (o->last)
                o->last->next = item;
        else
                o->first = item;
        o->last = item;
        return item;
}

static double time_ms(usec_t started, usec_t time)
{
        return time > started ? (double)(time - started) / 1000 : 0;
}

/* -- streams ------------------------------------------------------------------------------------------------------------- */

static void append_text(struct cop_outputs *o, enum cop_stream stream, enum zone zone, const char *text, size_t n,
                        double at)
{
        struct stream_state *s = &o->streams[stream];

        while (n > 0) {
                size_t part = n > CHUNK_MAX ? cop_utf8_cut(text, CHUNK_MAX) : n;
                struct item *item = o->last;
                if (part == 0)
                        part = MIN_OF(n, (size_t)CHUNK_MAX);
                if (!item || item->stream != stream || item->zone != zone || item->text.len + part > CHUNK_MAX)
                        item = append_item(o, zone, at);
                if (item && !item->stream) {
                        item->stream = stream;
                        s->items[zone]++;
                        if (zone == ZONE_TAIL && !s->first_tail)
                                s->first_tail = item;
                }
                if (!item || cop_buf_add(&item->text, text, part) < 0) {
                        s->dropped += n; /* out of memory: told as dropped */
                        return;
                }
                if (zone == ZONE_HEAD)
                        s->head += part;
                else
                        s->tail += part;
                text += part;
                n -= part;
        }
}

/* Cuts the oldest tail text of the stream until the tail fits. */
static void trim_tail(struct cop_outputs *o, enum cop_stream stream)
{
        struct stream_state *s = &o->streams[stream];
        size_t limit = o->stream_max - o->stream_max / 2;

        for (struct item *item = s->first_tail, *next; item && (s->tail > limit || s->items[ZONE_TAIL] > ITEMS_MAX);
             item = next) {
                next = item->next;
                if (item->stream != stream || item->zone != ZONE_TAIL)
                        continue;
                size_t left = item->text.len - item->start, over = s->tail > limit ? s->tail - limit : left;
                if (over < left) {
                        /* To the next character's start, so the tail begins with a whole one. */
                        while (over < left && ((unsigned char)item->text.data[item->start + over] & 0xC0) == 0x80)
                                over++;
                } else {
                        over = left;
                }
                item->start += over;
                s->tail -= over;
                s->dropped += over;
                s->first_tail = item;
                if (item->start == item->text.len) {
                        s->first_tail = next;
                        remove_item(o, item);
                }
        }
        while (s->first_tail && (s->first_tail->stream != stream || s->first_tail->zone != ZONE_TAIL))
                s->first_tail = s->first_tail->next;
}

static void add_text(struct cop_outputs *o, const struct cop_output *out)
{
        enum cop_stream stream = out->stream == COP_STREAM_STDERR ? COP_STREAM_STDERR : COP_STREAM_STDOUT;
        struct stream_state *s = &o->streams[stream];
        double at = time_ms(o->started, out->time);
        size_t room = o->stream_max / 2 - s->head, head = 0;

        s->bytes += out->text_len;
        if (s->tail == 0 && s->dropped == 0 && room > 0 && s->items[ZONE_HEAD] < ITEMS_MAX) {
                head = out->text_len <= room ? out->text_len : cop_utf8_cut(out->text, room);
                append_text(o, stream, ZONE_HEAD, out->text, head, at);
        }
        if (head < out->text_len) {
                const char *rest = out->text + head;
                size_t n = out->text_len - head, limit = o->stream_max - o->stream_max / 2;
                if (n > 2 * limit + CHUNK_MAX) { /* do not copy what is dropped at once */
                        size_t skip = n - limit - CHUNK_MAX;
                        while (skip < n && ((unsigned char)rest[skip] & 0xC0) == 0x80)
                                skip++;
                        s->dropped += skip;
                        rest += skip;
                        n -= skip;
                }
                append_text(o, stream, ZONE_TAIL, rest, n, at);
                trim_tail(o, stream);
        }
}

/* -- rich outputs ----------------------------------------------------------------------------------------------------------- */

/* Bytes of all strings inside, keys included; enough to bound memory. */
static size_t json_weight(json_t *value, int depth)
{
        size_t n = 16, i;
        const char *key;
        json_t *member;

        if (depth > 100)
                return n;
        if (json_is_string(value))
                return n + json_string_length(value);
        if (json_is_object(value)) {
                json_object_foreach (value, key, member)
                        n += strlen(key) + json_weight(member, depth + 1);
        } else if (json_is_array(value)) {
                json_array_foreach (value, i, member)
                        n += json_weight(member, depth + 1);
        }
        return n;
}

/* A copy of data whose text/plain is at most text_max bytes and whose other representations are at most COP_OUTPUT_MIME_BYTES;
 * what was cut or left out is named in *metadata (a copy too). */
static json_t *bounded_data(json_t *data, json_t *original_metadata, size_t text_max, json_t **metadata)
{
        json_t *copy = json_object(), *cut = NULL, *value;
        const char *mime;

        *metadata = json_copy(original_metadata);
        json_object_foreach (data, mime, value) {
                size_t weight = json_weight(value, 0);
                bool plain = strncmp(mime, "text/plain", 10) == 0 && json_is_string(value);
                if (weight <= (plain ? text_max : COP_OUTPUT_MIME_BYTES)) {
                        json_object_set(copy, mime, value);
                        continue;
                }
                if (plain) {
                        const char *text = json_string_value(value);
                        _cleanup_buf_ struct cop_buf buf = COP_BUF(text_max + 128);
                        size_t keep = cop_utf8_cut(text, text_max);
                        cop_buf_add(&buf, text, keep);
                        cop_buf_addf(&buf, "\n[… %zu bytes left out …]", json_string_length(value) - keep);
                        json_object_set_new(copy, mime, cop_json_foreign_string(buf.data, buf.len));
                }
                if (!cut)
                        cut = json_object();
                json_object_set_new(cut, mime, json_integer((json_int_t)weight));
        }
        if (cut)
                json_object_set_new(*metadata, "coppice_truncated", cut);
        return copy;
}

static const char *image_of(json_t *object, const char *mime)
{
        return json_string_value(json_object_get(json_object_get(object, "data"), mime));
}

/* A figure that is the cell's last line is sent twice: as a result and by the inline flush (notes/jupyter.md 1.5). */
static bool same_image_shown(struct cop_outputs *o, json_t *data)
{
        static const char *const mimes[] = {"image/png", "image/jpeg", "image/svg+xml"};

        for (size_t i = 0; i < ELEMENTSOF(mimes); i++) {
                const char *image = json_string_value(json_object_get(data, mimes[i]));
                if (!image)
                        continue;
                for (struct item *item = o->last; item; item = item->prev) {
                        const char *shown = item->object ? image_of(item->object, mimes[i]) : NULL;
                        if (shown && strcmp(shown, image) == 0)
                                return true;
                }
        }
        return false;
}

static const char *kind_name(const struct cop_output *out)
{
        switch (out->kind) {
        case COP_OUTPUT_STREAM:
                return out->stream == COP_STREAM_STDERR ? "stderr" : "stdout";
        case COP_OUTPUT_DISPLAY:
                return "display";
        case COP_OUTPUT_RESULT:
                return "result";
        case COP_OUTPUT_UPDATE_DISPLAY:
                return "update";
        case COP_OUTPUT_CLEAR:
                return "clear";
        case COP_OUTPUT_ERROR:
                return "error";
        }
        return "stdout";
}

static json_t *rich_event(const struct cop_output *out, usec_t started, size_t text_max)
{
        json_t *event = json_pack("{s:s, s:f}", "type", kind_name(out), "time_ms", time_ms(started, out->time));
        json_t *metadata = NULL;

        if (!event)
                return NULL;
        switch (out->kind) {
        case COP_OUTPUT_STREAM:
                json_object_set_new(event, "text", cop_json_foreign_string(out->text, out->text_len));
                break;
        case COP_OUTPUT_DISPLAY:
        case COP_OUTPUT_RESULT:
        case COP_OUTPUT_UPDATE_DISPLAY:
                json_object_set_new(event, "data", bounded_data(out->data, out->metadata, text_max, &metadata));
                json_object_set_new(event, "metadata", metadata);
                if (out->display_id)
                        json_object_set_new(event, "display_id", json_string(out->display_id));
                if (out->execution_count >= 0 && out->kind == COP_OUTPUT_RESULT)
                        json_object_set_new(event, "execution_count", json_integer(out->execution_count));
                break;
        case COP_OUTPUT_CLEAR:
                json_object_set_new(event, "wait", json_boolean(out->wait));
                break;
        case COP_OUTPUT_ERROR:
                json_object_set_new(event, "name", json_string(out->ename));
                json_object_set_new(event, "value", json_string(out->evalue));
                json_object_set(event, "traceback", out->traceback);
                break;
        }
        return event;
}

json_t *cop_output_event(const struct cop_output *out, usec_t started)
{
        return rich_event(out, started, COP_OUTPUT_MAX_DEFAULT);
}

/* Replaces the data of all kept displays with this id; true when there was one. */
static bool update_displays(struct cop_outputs *o, json_t *event, const char *display_id)
{
        bool found = false;

        for (struct item *item = o->first; display_id && item; item = item->next) {
                const char *id = item->object ? json_string_value(json_object_get(item->object, "display_id")) : NULL;
                if (!id || strcmp(id, display_id) != 0)
                        continue;
                json_object_set(item->object, "data", json_object_get(event, "data"));
                json_object_set(item->object, "metadata", json_object_get(event, "metadata"));
                size_t size = json_weight(item->object, 0);
                o->rich_bytes = o->rich_bytes - item->size + size;
                item->size = size;
                found = true;
        }
        return found;
}

static void keep_rich(struct cop_outputs *o, json_t *event)
{
        size_t size = json_weight(event, 0);

        if (o->rich_count >= COP_OUTPUT_RICH_ITEMS || o->rich_bytes + size > COP_OUTPUT_RICH_BYTES) {
                o->rich_dropped++;
                return;
        }
        struct item *item = append_item(o, ZONE_RICH, 0);
        if (!item) {
                o->rich_dropped++;
                return;
        }
        item->object = json_incref(event);
        item->size = size;
        o->rich_count++;
        o->rich_bytes += size;
}

/* A notebook shows nothing of what came before; a marker says that something did.  The streams' counts stay exact. */
static void clear(struct cop_outputs *o)
{
        o->clear_next = false;
        while (o->first)
                remove_item(o, o->first);
        for (int i = COP_STREAM_STDOUT; i <= COP_STREAM_STDERR; i++)
                o->streams[i] = (struct stream_state){0};
        _cleanup_json_ json_t *marker = json_pack("{s:s, s:b}", "type", "clear", "wait", 0);
        if (marker)
                keep_rich(o, marker);
}

json_t *cop_outputs_add(struct cop_outputs *o, const struct cop_output *out)
{
        if (out->kind != COP_OUTPUT_CLEAR && o->clear_next)
                clear(o);
        if (out->kind == COP_OUTPUT_STREAM && out->text_len == 0)
                return NULL;
        if ((out->kind == COP_OUTPUT_DISPLAY || out->kind == COP_OUTPUT_RESULT) && same_image_shown(o, out->data))
                return NULL;

        json_t *event = rich_event(out, o->started, o->stream_max);
        switch (out->kind) {
        case COP_OUTPUT_STREAM:
                add_text(o, out);
                break;
        case COP_OUTPUT_CLEAR:
                if (out->wait)
                        o->clear_next = true;
                else
                        clear(o);
                break;
        case COP_OUTPUT_UPDATE_DISPLAY:
                if (event && !update_displays(o, event, out->display_id))
                        keep_rich(o, event);
                break;
        case COP_OUTPUT_DISPLAY:
        case COP_OUTPUT_RESULT:
        case COP_OUTPUT_ERROR:
                if (event)
                        keep_rich(o, event);
                break;
        }
        return event;
}

/* -- results ------------------------------------------------------------------------------------------------------------------ */

/* As a terminal would show it in the end: \r\n is a line's end, and what follows a lone \r replaces the line so far (progress
 * bars; notes/jupyter.md case 34).  In place; returns the new length. */
static size_t fold_carriage_returns(char *text, size_t n)
{
        size_t out = 0, line = 0;

        for (size_t i = 0; i < n; i++) {
                if (text[i] == '\r') {
                        size_t next = i + 1;
                        while (next < n && text[next] == '\r')
                                next++;
                        if (next < n && text[next] != '\n')
                                out = line;
                        i = next - 1;
                        continue;
                }
                text[out++] = text[i];
                if (text[i] == '\n')
                        line = out;
        }
        return out;
}

static json_t *text_item(const struct item *item)
{
        size_t n = item->text.len - item->start;
        _cleanup_free_ char *text = malloc(n + 1);

        if (!text)
                return NULL;
        memcpy(text, item->text.data + item->start, n);
        n = fold_carriage_returns(text, n);
        return json_pack("{s:s, s:o, s:f}", "type", item->stream == COP_STREAM_STDERR ? "stderr" : "stdout", "text",
                         cop_json_foreign_string(text, n), "time_ms", item->time_ms);
}

json_t *cop_outputs_items(struct cop_outputs *o)
{
        bool gap_told[3] = {false};
        json_t *items = json_array();

        for (struct item *item = o->first; item; item = item->next) {
                struct stream_state *s = &o->streams[item->stream];
                if (item->zone == ZONE_TAIL && s->dropped > 0 && !gap_told[item->stream]) {
                        gap_told[item->stream] = true;
                        json_array_append_new(items, json_pack("{s:s, s:s, s:I}", "type", "truncated", "stream",
                                                               item->stream == COP_STREAM_STDERR ? "stderr" : "stdout",
                                                               "dropped", (json_int_t)s->dropped));
                }
                if (item->zone == ZONE_RICH)
                        json_array_append(items, item->object);
                else
                        json_array_append_new(items, text_item(item));
        }
        return items;
}

json_t *cop_outputs_truncated(struct cop_outputs *o)
{
        static const char *const names[] = {NULL, "stdout", "stderr"};
        json_t *truncated = NULL;

        for (int i = COP_STREAM_STDOUT; i <= COP_STREAM_STDERR; i++) {
                const struct stream_state *s = &o->streams[i];
                if (s->dropped == 0)
                        continue;
                if (!truncated)
                        truncated = json_object();
                json_object_set_new(truncated, names[i],
                                    json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)s->bytes, "kept_head",
                                              (json_int_t)s->head, "kept_tail", (json_int_t)s->tail, "dropped",
                                              (json_int_t)s->dropped));
        }
        if (o->rich_dropped > 0) {
                if (!truncated)
                        truncated = json_object();
                json_object_set_new(truncated, "outputs",
                                    json_pack("{s:I, s:I}", "count",
                                              (json_int_t)o->rich_count + (json_int_t)o->rich_dropped, "dropped",
                                              (json_int_t)o->rich_dropped));
        }
        return truncated;
}

static void add_result(json_t *results, json_t *item, const char *type)
{
        json_array_append_new(results,
                              json_pack("{s:O, s:O, s:b}", "data", json_object_get(item, "data"), "metadata",
                                        json_object_get(item, "metadata"), "main", strcmp(type, "result") == 0));
}

void cop_outputs_spread(json_t *cell, json_t *items)
{
        struct cop_buf streams[2] = {COP_BUF(SIZE_MAX / 4), COP_BUF(SIZE_MAX / 4)};
        json_t *results = json_array(), *item;
        size_t i;

        json_array_foreach (items, i, item) {
                const char *type = json_string_value(json_object_get(item, "type"));
                json_t *text = json_object_get(item, "text");
                if (!type)
                        continue;
                if (strcmp(type, "truncated") == 0) {
                        const char *stream = json_string_value(json_object_get(item, "stream"));
                        cop_buf_addf(&streams[stream && strcmp(stream, "stderr") == 0], "\n[… %lld bytes left out …]\n",
                                     (long long)json_integer_value(json_object_get(item, "dropped")));
                } else if (text) {
                        cop_buf_add(&streams[strcmp(type, "stderr") == 0], json_string_value(text),
                                    json_string_length(text));
                } else if (json_object_get(item, "data")) {
                        add_result(results, item, type);
                }
        }
        for (int n = 0; n < 2; n++) {
                json_object_set_new(cell, n ? "stderr" : "stdout",
                                    cop_json_foreign_string(streams[n].data ? streams[n].data : "", streams[n].len));
                cop_buf_done(&streams[n]);
        }
        json_object_set_new(cell, "results", results);
        json_object_set_new(cell, "outputs", items);
}
