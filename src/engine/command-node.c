/* Commands in nodes: a node knows which commands ran in its state, so that a sandbox made from it, which has their processes, knows
 * them too, by the same ids and pids as its source.  Their logs begin with the fork. */
#include "engine/command.h"

#include <stdlib.h>
#include <string.h>

#define SPEC_MAX 65536 /* bytes; what was asked for in longer ones (an environment, mostly) is not kept */

static json_t *command_spec(const struct cop_command_row *row)
{
        bool fits = row->spec && strlen(row->spec) <= SPEC_MAX;

        return json_pack("{s:s, s:I, s:b, s:I, s:s}", "id", row->id, "pid", (json_int_t)row->pid, "detached",
                         row->detached, "started_at", (json_int_t)row->started_at, "spec", fits ? row->spec : "{}");
}

json_t *cop_commands_spec(const struct cop_sandbox *sb)
{
        json_t *list = json_array();

        for (const struct cop_command *c = sb->commands; c; c = c->next)
                if (!c->exited && c->row->pid > 0)
                        json_array_append_new(list, command_spec(c->row));
        return list;
}

/* As it was asked for; without its environment, which may hold secrets, unless that is inherited. */
static char *asked_for(json_t *spec, bool env)
{
        const char *text = json_string_value(json_object_get(spec, "spec"));
        _cleanup_json_ json_t *asked = text ? json_loads(text, 0, NULL) : NULL;

        if (!asked)
                asked = json_object();
        if (!env)
                json_object_del(asked, "env");
        return json_dumps(asked, JSON_COMPACT);
}

static int insert(struct cop_sandbox *sb, json_t *spec, bool env, struct cop_error *err)
{
        _cleanup_(cop_command_row_freep) struct cop_command_row *known = NULL;
        const char *id = json_string_value(json_object_get(spec, "id"));
        struct cop_command_row row = {.status = "running", .exit_code = -1};

        if (!id || strlen(id) >= sizeof(row.id))
                return 0;
        if (cop_store_command_get(sb->engine->store, sb->id, id, &known, NULL) == 0)
                return 0; /* its own: cop_commands_adopt finds out what became of it */
        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(row.sandbox_id, sizeof(row.sandbox_id), "%s", sb->id);
        row.pid = json_integer_value(json_object_get(spec, "pid"));
        row.detached = json_is_true(json_object_get(spec, "detached"));
        row.started_at = (usec_t)json_integer_value(json_object_get(spec, "started_at"));
        _cleanup_free_ char *text = asked_for(spec, env);
        row.spec = text;
        return cop_store_command_insert(sb->engine->store, &row, err);
}

int cop_commands_restore(struct cop_sandbox *sb, json_t *list, bool env, struct cop_error *err)
{
        size_t i = json_array_size(list);
        int r = 0;

        while (r == 0 && i-- > 0) /* the list is newest first */
                r = insert(sb, json_array_get(list, i), env, err);
        return r;
}
