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
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/undo", argv[0]);
        _cleanup_json_ json_t *body = json_object();

        if (argc > 1) {
                if (cop_param_number(body, "steps", argv[1], &cli->err) < 0 ||
                    !json_is_integer(json_object_get(body, "steps")))
                        return cop_cli_usage(cli, "how many cells? \"%s\" is not a whole number above 0", argv[1]);
        }
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_travel(cli, path, body, opt.json);
}

const struct cop_verb cop_verb_undo = {
        .name = "undo",
        .args = "SANDBOX [N]",
        .summary = "bring memory and files back to before the last cell, or the last N cells",
        .notes = "Goes back to the newest saved state from before those cells: files that were deleted come back, new "
                 "ones go.\n"
                 "coppice log SANDBOX shows the states there are; coppice goto reaches any of them.",
        .examples = "coppice undo demo\n"
                    "coppice undo demo 3",
        .options = options,
        .args_min = 1,
        .args_max = 2,
        .run = run,
};
