#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        struct cop_list files, variables;
        const char *context;
        bool json;
} opt;

static const struct cop_option options[] = {
        {"file", 'f', COP_OPTION_LIST, &opt.files, "PATH", "a file or folder, by its absolute path; may be repeated"},
        {"var", 'v', COP_OPTION_LIST, &opt.variables, "NAME", "a variable; may be repeated"},
        {"context", 'c', COP_OPTION_STRING, &opt.context, "CONTEXT", "of the variables, in both (default)"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "what was taken, and how long each part took"},
        {0},
};

static void add_list(json_t *body, const char *key, const struct cop_list *list)
{
        json_t *array = json_array();

        for (size_t i = 0; i < list->count; i++)
                json_array_append_new(array, json_string(list->items[i]));
        json_object_set_new(body, key, array);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/take", argv[1]);
        _cleanup_json_ json_t *body = json_object(), *reply = NULL;

        if (opt.files.count + opt.variables.count == 0)
                return cop_cli_usage(cli, "nothing to take: give --file PATH or --var NAME");
        cop_param_str(body, "from", argv[0]);
        cop_param_str(body, "context", opt.context);
        add_list(body, "files", &opt.files);
        add_list(body, "variables", &opt.variables);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "POST", path, body, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                puts(cop_member(reply, "sandbox_id", ""));
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_take = {
        .name = "take",
        .args = "SRC DST",
        .summary = "copy files or variables of a state into a sandbox",
        .notes = "SRC is a sandbox (as it is now), a snapshot, or a node of coppice log, and is only read. DST is a "
                 "sandbox; "
                 "what has\n"
                 "the same path or name there is replaced, and files become its user's. A variable must be one that "
                 "can be "
                 "pickled:\n"
                 "of what was defined in a cell (functions, classes) run that cell in DST instead. At most 4 GiB for "
                 "each "
                 "path, 512\n"
                 "MiB for the variables.",
        .examples = "coppice take b2 demo --file /workspace/model.pkl\n"
                    "coppice take b2 demo --var df --var scores\n"
                    "coppice take clean-data demo --file /workspace/data",
        .options = options,
        .args_min = 2,
        .args_max = 2,
        .run = run,
};
