#include "resumed.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "print.h"

void cop_cli_print_resumed(struct cop_cli *cli, json_t *reply, bool json)
{
        json_t *replay = json_object_get(reply, "replay");

        if (json)
                cop_print_json(reply, cli->out_tty);
        else
                puts(cop_member(reply, "id", ""));
        if (!json_is_false(json_object_get(reply, "memoryRestored")))
                return;
        cop_cli_note(cli, "its files are back, its memory is not (%s): variables and processes are gone",
                     cop_member(reply, "resumeReason", "unknown"));
        if (cop_member(reply, "resumeMessage", NULL))
                cop_cli_note(cli, "%s", cop_member(reply, "resumeMessage", ""));
        if (!json_is_object(replay))
                return;
        cop_cli_note(
                cli,
                "cells run again: %lld, of which %lld failed and %lld said something else than before; not: %lld%s",
                (long long)json_integer_value(json_object_get(replay, "cells")),
                (long long)json_integer_value(json_object_get(replay, "failed")),
                (long long)json_integer_value(json_object_get(replay, "different")),
                (long long)json_integer_value(json_object_get(replay, "skipped")),
                json_is_false(json_object_get(replay, "complete")) ? "; earlier ones are not recorded any more" : "");
}

int cop_cli_travel(struct cop_cli *cli, const char *path, json_t *body, bool json)
{
        _cleanup_json_ json_t *reply = NULL;

        if (!path || !cop_cli_call(cli, "POST", path, body, &reply))
                return COP_EXIT_ERROR;
        cop_cli_print_resumed(cli, reply, json);
        return COP_EXIT_OK;
}
