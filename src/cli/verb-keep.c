#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool drop_siblings, json;
} opt;

static const struct cop_option options[] = {
        {"drop-siblings", 0, COP_OPTION_FLAG, &opt.drop_siblings, NULL, "remove the other copies of the same fork"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the sandbox and what was removed"},
        {0},
};

static int show_removed(struct cop_cli *cli, json_t *removed)
{
        int exit = COP_EXIT_OK;
        json_t *sandbox;
        size_t i;

        json_array_foreach (removed, i, sandbox) {
                const char *id = cop_member(sandbox, "id", ""), *name = cop_member(sandbox, "name", NULL);
                bool ok = json_is_true(json_object_get(sandbox, "removed"));
                if (!ok)
                        exit = COP_EXIT_ERROR;
                if (!ok || !opt.json)
                        cop_cli_note(cli, ok ? "removed %s%s%s%s" : "%s%s%s%s was not removed: %s", id,
                                     name ? " (" : "", name ? name : "", name ? ")" : "",
                                     cop_member(sandbox, "message", "see coppice logs"));
        }
        return exit;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/keep", argv[0]);
        _cleanup_json_ json_t *body = json_pack("{s:b}", "drop_siblings", opt.drop_siblings), *reply = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "POST", path, body, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                puts(cop_member(json_object_get(reply, "sandbox"), "id", ""));
        return show_removed(cli, json_object_get(reply, "removed"));
}

const struct cop_verb cop_verb_keep = {
        .name = "keep",
        .args = "SANDBOX",
        .summary = "make a sandbox persistent, and drop its siblings",
        .notes = "A persistent sandbox is never ended by itself, only put to sleep. With --drop-siblings it is the "
                 "winner "
                 "of a fork:\n"
                 "the other copies that the same fork made are removed; their source stays. Prints its id; the status "
                 "is 1 "
                 "when a\n"
                 "sibling could not be removed.",
        .examples = "coppice keep demo\n"
                    "coppice keep b2 --drop-siblings",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
