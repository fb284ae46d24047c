#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static bool json;
static const struct cop_option options[] = {COP_OPTION_JSON(&json), {0}};

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *reply = NULL, *both = NULL;
        const char *daemon = NULL;

        /* Asking for a version starts nothing. */
        if (cop_cli_find(cli) && cop_client_call(cli->client, "GET", "/api/health", NULL, &reply, NULL) == 0)
                daemon = cop_member(reply, "version", NULL);
        if (json) {
                both = json_pack("{s:s,s:s?}", "client", COPPICE_VERSION, "daemon", daemon);
                cop_print_json(both, cli->out_tty);
                return COP_EXIT_OK;
        }
        printf("coppice %s\n", COPPICE_VERSION);
        if (daemon && strcmp(daemon, COPPICE_VERSION) != 0)
                cop_cli_note(cli, "the daemon that runs is version %s; restart it to use %s", daemon, COPPICE_VERSION);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_version = {
        .name = "version",
        .args = "",
        .summary = "print the version of this program and of the running daemon",
        .examples = "coppice version",
        .options = options,
        .run = run,
};
