/* Services: commands that were started with `restart`.  A sandbox that comes up without its memory starts those again that ran in the state
 * it comes from.  Each becomes a command of its own, which names the lost one (restart_of). */
#include "engine/command.h"

#include <stdlib.h>
#include <string.h>

struct service {
        struct cop_engine *engine;
        char sandbox_id[COP_ID_MAX], lost[COP_ID_MAX];
};

static void on_started(json_t *command, const struct cop_error *err, void *userdata)
{
        struct service *s = userdata;
        _cleanup_json_ json_t *detail = json_pack("{s:s}", "restart_of", s->lost);

        json_object_set(detail, "command_id", json_object_get(command, "id"));
        json_object_set(detail, "pid", json_object_get(command, "pid"));
        if (err)
                json_object_set_new(detail, "message", json_string(err->message));
        if (!s->engine->closing)
                cop_engine_event(s->engine, err ? "command.restart_failed" : "command.restarted", s->sandbox_id,
                                 detail);
        free(s);
}

/* NULL-terminated; the strings are borrowed from the array. */
static const char **argv_of(json_t *list)
{
        const char **argv = calloc(json_array_size(list) + 1, sizeof(*argv));
        json_t *arg;
        size_t i;

        json_array_foreach (list, i, arg)
                if (argv)
                        argv[i] = json_string_value(arg);
        return argv;
}

void cop_service_start_again(struct cop_sandbox *sb, const struct cop_command_row *lost)
{
        _cleanup_json_ json_t *spec = lost->spec ? json_loads(lost->spec, 0, NULL) : NULL;
        double timeout = json_number_value(json_object_get(spec, "timeout_seconds"));
        struct service *s;

        if (!json_is_true(json_object_get(spec, "restart")) || !(s = calloc(1, sizeof(*s))))
                return;
        *s = (struct service){.engine = sb->engine};
        snprintf(s->sandbox_id, sizeof(s->sandbox_id), "%s", sb->id);
        snprintf(s->lost, sizeof(s->lost), "%s", lost->id);
        _cleanup_free_ const char **argv = argv_of(json_object_get(spec, "argv"));
        const struct cop_exec_params p = {
                .command = json_string_value(json_object_get(spec, "command")),
                .argv = json_object_get(spec, "argv") ? argv : NULL,
                .cwd = json_string_value(json_object_get(spec, "cwd")),
                .user = json_string_value(json_object_get(spec, "user")),
                .env = json_object_get(spec, "env"),
                .timeout = timeout > 0 ? (usec_t)(timeout * USEC_PER_SEC) : USEC_INFINITY,
                .output_max = cop_command_output_max(lost),
                .detach = true,
                .restart = true,
                .restart_of = lost->id,
        };
        cop_command_run(sb->engine, sb->id, &p, (struct cop_op_to){.done = on_started, .userdata = s}, NULL);
}
