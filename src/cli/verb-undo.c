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

/* undo and redo take the same. */
static int step(struct cop_cli *cli, const char *what, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/%s", argv[0], what);
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

static int undo(struct cop_cli *cli, size_t argc, char **argv)
{
        return step(cli, "undo", argc, argv);
}

static int redo(struct cop_cli *cli, size_t argc, char **argv)
{
        return step(cli, "redo", argc, argv);
}

const struct cop_verb cop_verb_undo = {
        .name = "undo",
        .args = "SANDBOX [N]",
        .summary = "bring memory and files back to before the last cell, or the last N cells",
        .notes = "Goes back to the newest saved state from before those cells: files that were deleted come back, new "
                 "ones go.\n"
                 "coppice redo takes it back, as long as nothing new was run. coppice log SANDBOX shows the "
                 "states there are;\ncoppice goto reaches any of them.",
        .examples = "coppice undo demo\n"
                    "coppice undo demo 3",
        .options = options,
        .args_min = 1,
        .args_max = 2,
        .run = undo,
};

const struct cop_verb cop_verb_redo = {
        .name = "redo",
        .args = "SANDBOX [N]",
        .summary = "take back the last undo, or the last N",
        .notes = "Memory and files are again as they were before it. A cell that is run after an undo ends that: "
                 "what was undone\nis no longer ahead of it, but coppice goto still reaches it.",
        .examples = "coppice redo demo\n"
                    "coppice redo demo 2",
        .options = options,
        .args_min = 1,
        .args_max = 2,
        .run = redo,
};
