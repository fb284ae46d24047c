#include "engine/diff-variables.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

#define VARIABLES_MAX 2000
#define DIMENSIONS_MAX 32

/* -- what a kernel said ------------------------------------------------------------------------------------------------ */

static void copy_text(json_t *from, json_t *to, const char *key, size_t max)
{
        json_t *value = json_object_get(from, key);

        if (json_is_string(value) && json_string_length(value) <= max)
                json_object_set(to, key, value);
}

static void copy_shape(json_t *from, json_t *to)
{
        json_t *shape = json_object_get(from, "shape"), *n;
        size_t i;

        if (!json_is_array(shape) || json_array_size(shape) > DIMENSIONS_MAX)
                return;
        json_array_foreach (shape, i, n)
                if (!json_is_integer(n) || json_integer_value(n) < 0)
                        return;
        json_object_set(to, "shape", shape);
}

/* Only the fields we know, each of its kind and length. */
static json_t *clean(json_t *entry)
{
        json_t *view = json_object(), *size = json_object_get(entry, "size");

        copy_text(entry, view, "type", 300);
        if (!json_object_get(view, "type"))
                json_object_set_new(view, "type", json_string("?"));
        copy_shape(entry, view);
        if (json_is_integer(size) && json_integer_value(size) >= 0)
                json_object_set(view, "size", size);
        copy_text(entry, view, "digest", 64);
        copy_text(entry, view, "note", 400);
        copy_text(entry, view, "preview", 400);
        return view;
}

/* Name to view. */
static json_t *read_side(json_t *answer, bool *truncated)
{
        json_t *list = json_object_get(answer, "variables"), *side = json_object(), *entry;
        size_t i;

        *truncated |= json_is_true(json_object_get(answer, "truncated")) || json_array_size(list) > VARIABLES_MAX;
        json_array_foreach (list, i, entry) {
                json_t *name = json_object_get(entry, "name");
                if (i < VARIABLES_MAX && json_is_string(name) && json_string_length(name) <= 800)
                        json_object_set_new(side, json_string_value(name), clean(entry));
        }
        return side;
}

/* -- comparing ----------------------------------------------------------------------------------------------------------- */

static bool same(json_t *a, json_t *b, const char *key)
{
        json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

        return x && y ? json_equal(x, y) : x == y;
}

enum outcome { SAME, CHANGED, UNSURE };

static enum outcome judge(json_t *a, json_t *b)
{
        if (!same(a, b, "type") || !same(a, b, "shape"))
                return CHANGED;
        if (!json_object_get(a, "digest") || !json_object_get(b, "digest"))
                return UNSURE;
        return same(a, b, "digest") ? SAME : CHANGED;
}

struct outcomes {
        json_t *changes, *unsure; /* borrowed */
        json_int_t same;
};

static void compare_one(struct outcomes *o, const char *name, json_t *a, json_t *b)
{
        enum outcome outcome = a && b ? judge(a, b) : CHANGED;

        if (outcome == SAME) {
                o->same++;
        } else if (outcome == UNSURE) {
                json_t *why = json_object_get(a, "note") ? json_object_get(a, "note") : json_object_get(b, "note");
                const char *note = json_string_value(why);
                json_array_append_new(o->unsure,
                                      json_pack("{s:s, s:O, s:s}", "name", name, "type", json_object_get(a, "type"),
                                                "note", note ? note : "it has no digest"));
        } else {
                json_t *change = json_pack("{s:s, s:s}", "name", name, "change",
                                           !a   ? "added"
                                           : !b ? "removed"
                                                : "changed");
                if (a)
                        json_object_set(change, "a", a);
                if (b)
                        json_object_set(change, "b", b);
                json_array_append_new(o->changes, change);
        }
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *cop_diff_variables(json_t *a, json_t *b)
{
        bool truncated = false;
        _cleanup_json_ json_t *x = read_side(a, &truncated), *y = read_side(b, &truncated), *all = json_object();
        _cleanup_json_ json_t *changes = json_array(), *unsure = json_array();
        struct outcomes o = {changes, unsure, 0};
        const char *name;
        json_t *value;
        size_t n = 0;

        json_object_update(all, x);
        json_object_update(all, y);
        _cleanup_free_ const char **names = calloc(json_object_size(all) + 1, sizeof(*names));
        if (!names)
                return NULL;
        json_object_foreach (all, name, value)
                names[n++] = name;
        qsort(names, n, sizeof(*names), by_name);
        for (size_t i = 0; i < n; i++)
                compare_one(&o, names[i], json_object_get(x, names[i]), json_object_get(y, names[i]));
        return json_pack("{s:O, s:O, s:I, s:b}", "changes", changes, "unsure", unsure, "same", o.same, "truncated",
                         truncated);
}
