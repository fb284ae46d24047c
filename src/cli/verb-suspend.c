#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool json;
} opt;

static const struct cop_option options[] = {
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole sandbox, not just its id"},
        {0},
};

static int suspend_one(struct cop_cli *cli, const char *ref)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/suspend", ref);
        _cleanup_json_ json_t *sandbox = NULL;

        if (!path || !cop_cli_call(cli, "POST", path, NULL, &sandbox))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(sandbox, cli->out_tty);
        else
                puts(cop_member(sandbox, "id", ref));
        return COP_EXIT_OK;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_each(cli, argc, argv, suspend_one);
}

const struct cop_verb cop_verb_suspend = {
        .name = "suspend",
        .args = "SANDBOX…",
        .summary = "put processes and memory to disk until something needs them",
        .notes = "A suspended sandbox has no processes and uses no memory. Any verb that needs it wakes it, with its "
                 "variables,\n"
                 "processes and listening ports; coppice ls, info, logs and log leave it asleep. Running cells are "
                 "waited for.",
        .examples = "coppice suspend demo\n"
                    "coppice run demo 'x'    # wakes it",
        .options = options,
        .args_min = 1,
        .args_max = 1000,
        .run = run,
};
