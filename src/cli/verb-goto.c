#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "resumed.h"
#include "verbs.h"

static struct {
        bool json;
} opt;

static const struct cop_option options[] = {
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole sandbox and how it came back"},
        {0},
};

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/goto", argv[0]);
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "node", argv[1]);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_travel(cli, path, body, opt.json);
}

const struct cop_verb cop_verb_goto = {
        .name = "goto",
        .args = "SANDBOX NODE",
        .summary = "bring memory and files to a saved state, in place",
        .notes = "NODE is an id (nd_…) from coppice log, or the name of a snapshot. What the sandbox has now is given "
                 "up, unless\n"
                 "it was saved: coppice snapshot SANDBOX does that.",
        .examples = "coppice goto demo clean-data\n"
                    "coppice goto demo nd_4f7k2m9x1q",
        .options = options,
        .args_min = 2,
        .args_max = 2,
        .run = run,
};
