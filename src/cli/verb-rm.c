#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool all, force, json;
} opt;

static const struct cop_option options[] = {
        {"all", 'a', COP_OPTION_FLAG, &opt.all, NULL, "every live sandbox"},
        {"force", 'f', COP_OPTION_FLAG, &opt.force, NULL, "no error for one that is not there"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print what the daemon replied"},
        {0},
};

static int remove_all(struct cop_cli *cli)
{
        _cleanup_json_ json_t *reply = NULL;
        json_t *item;
        size_t i;

        if (!cop_cli_call(cli, "DELETE", "/api/sandboxes?all=true", NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                json_array_foreach (json_object_get(reply, "removed"), i, item)
                        puts(json_is_string(item) ? json_string_value(item) : cop_member(item, "id", ""));
        json_array_foreach (json_object_get(reply, "failed"), i, item)
                cop_cli_note(cli, "%s was not removed: %s",
                             json_is_string(item) ? json_string_value(item) : cop_member(item, "id", "?"),
                             cop_member(item, "message", "see coppice info"));
        return json_array_size(json_object_get(reply, "failed")) ? COP_EXIT_ERROR : COP_EXIT_OK;
}

static int remove_one(struct cop_cli *cli, const char *ref)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s", ref);
        _cleanup_json_ json_t *sandbox = NULL;

        if (!path || cop_client_call(cli->client, "DELETE", path, NULL, &sandbox, &cli->err) < 0) {
                bool absent = cli->err.code == COP_ERR_sandbox_not_found || cli->err.code == COP_ERR_sandbox_ended;
                return opt.force && absent ? COP_EXIT_OK : cop_cli_fail(cli);
        }
        if (opt.json)
                cop_print_json(sandbox, cli->out_tty);
        else
                puts(cop_member(sandbox, "id", ref));
        return COP_EXIT_OK;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        if (opt.all == (argc > 0))
                return cop_cli_usage(cli, opt.all ? "--all takes no sandboxes" : "which sandbox? (or --all)");
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (opt.all)
                return remove_all(cli);
        return cop_cli_each(cli, argc, argv, remove_one);
}

const struct cop_verb cop_verb_rm = {
        .name = "rm",
        .args = "SANDBOX… | --all",
        .summary = "end sandboxes and remove what is in them",
        .examples = "coppice rm demo\n"
                    "coppice rm --all",
        .options = options,
        .args_max = 1000,
        .run = run,
};
