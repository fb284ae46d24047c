#include "resumed.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "print.h"

int cop_cli_travel(struct cop_cli *cli, const char *path, json_t *body, bool json)
{
        _cleanup_json_ json_t *reply = NULL;

        if (!path || !cop_cli_call(cli, "POST", path, body, &reply))
                return COP_EXIT_ERROR;
        if (json)
                cop_print_json(reply, cli->out_tty);
        else
                puts(cop_member(reply, "id", ""));
        if (json_is_false(json_object_get(reply, "memoryRestored"))) {
                cop_cli_note(cli, "its files are back, its memory is not (%s): variables and processes are gone",
                             cop_member(reply, "resumeReason", "unknown"));
                if (cop_member(reply, "resumeMessage", NULL))
                        cop_cli_note(cli, "%s", cop_member(reply, "resumeMessage", ""));
        }
        return COP_EXIT_OK;
}
