#include <stdlib.h>
#include <string.h>

#include "engine/context.h"

static void merge_json(json_t *all, json_t *extra)
{
        const char *name;
        json_t *value;

        json_object_foreach (extra, name, value)
                if (json_is_string(value))
                        json_object_set(all, name, value);
}

void cop_msg_add_env(struct cop_msg *m, struct cop_sandbox *sb, json_t *extra, char *const *more)
{
        _cleanup_json_ json_t *all = json_object();
        _cleanup_json_ json_t *own = sb->row && sb->row->env ? json_loads(sb->row->env, 0, NULL) : NULL;
        const char *name;
        json_t *value;

        merge_json(all, json_object_get(sb->defaults, "env"));
        merge_json(all, own);
        merge_json(all, extra);
        for (; more && *more; more++) {
                const char *equals = strchr(*more, '=');
                if (!equals)
                        continue;
                _cleanup_free_ char *key = strndup(*more, (size_t)(equals - *more));
                if (key)
                        json_object_set_new(all, key, cop_json_foreign_string(equals + 1, strlen(equals + 1)));
        }
        json_object_foreach (all, name, value) {
                _cleanup_free_ char *entry = NULL;
                if (asprintf(&entry, "%s=%s", name, json_string_value(value)) >= 0)
                        cop_msg_add_str(m, COP_TAG_ENV, entry);
        }
}
