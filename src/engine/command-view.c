/* Commands as the API shows them.  The view of an ended command, outputs included, is what the store keeps of it. */
#include <signal.h>
#include <string.h>

#include "engine/command.h"

static void copy_spec(json_t *view, const struct cop_command_row *row)
{
        static const char *const keys[] = {"command",         "argv",    "cwd",       "user",
                                           "timeout_seconds", "restart", "restart_of"};
        _cleanup_json_ json_t *spec = row->spec ? json_loads(row->spec, 0, NULL) : NULL;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                json_t *value = json_object_get(spec, keys[i]);
                if (value)
                        json_object_set(view, keys[i], value);
        }
}

static void add_outputs(json_t *view, const struct cop_command_row *row, const struct cop_command_output *output)
{
        json_t *truncated = NULL;
        /* While it runs the totals are those of the log. */
        bool ended = row->ended_at != 0;

        for (unsigned i = 0; i < 2; i++) {
                uint64_t total = i ? row->stderr_bytes : row->stdout_bytes;
                if (!ended)
                        total = output->streams[i].bytes;
                json_object_set_new(view, i ? "stderr" : "stdout",
                                    cop_command_output_text(output, i, total, &truncated));
                json_object_set_new(view, i ? "stderr_bytes" : "stdout_bytes", json_integer((json_int_t)total));
        }
        if (truncated)
                json_object_set_new(view, "truncated", truncated);
}

json_t *cop_command_view(const struct cop_command_row *row, const struct cop_command_output *output)
{
        bool running = strcmp(row->status, "running") == 0;
        json_t *view =
                json_pack("{s:s, s:s, s:I, s:b, s:s, s:b}", "id", row->id, "sandbox_id", row->sandbox_id, "pid",
                          (json_int_t)row->pid, "detached", row->detached, "status", row->status, "running", running);

        if (!view)
                return NULL;
        copy_spec(view, row);
        if (!running && row->exit_code >= 0)
                json_object_set_new(view, "exit_code", json_integer(row->exit_code));
        if (!running && row->signal > 0)
                json_object_set_new(view, "signal", json_integer(row->signal));
        cop_view_time(view, "started_at", row->started_at);
        cop_view_time(view, "ended_at", row->ended_at);
        if (row->ended_at >= row->started_at && row->ended_at)
                json_object_set_new(view, "duration_ms", json_real((double)(row->ended_at - row->started_at) / 1000));
        if (output)
                add_outputs(view, row, output);
        if (row->ended_at)
                json_object_set_new(
                        view, "log",
                        json_pack("{s:I, s:b}", "bytes", (json_int_t)row->log_bytes, "complete", row->log_complete));
        return view;
}

json_t *cop_command_row_view(const struct cop_command_row *row, bool outputs)
{
        json_t *view = row->summary ? json_loads(row->summary, JSON_ALLOW_NUL, NULL) : NULL;

        if (!json_is_object(view)) {
                json_decref(view);
                return cop_command_view(row, NULL);
        }
        if (!outputs) {
                json_object_del(view, "stdout");
                json_object_del(view, "stderr");
        }
        return view;
}

size_t cop_command_output_max(const struct cop_command_row *row)
{
        _cleanup_json_ json_t *spec = row->spec ? json_loads(row->spec, 0, NULL) : NULL;
        json_int_t max = json_integer_value(json_object_get(spec, "output_max"));

        return max > 0 ? (size_t)max : COP_COMMAND_OUTPUT_MAX;
}

bool cop_command_kill_on_disconnect(const struct cop_command_row *row)
{
        _cleanup_json_ json_t *spec = row->spec ? json_loads(row->spec, 0, NULL) : NULL;
        const char *rule = json_string_value(json_object_get(spec, "on_disconnect"));

        return rule && strcmp(rule, "kill") == 0;
}
