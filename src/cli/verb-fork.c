#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        uint64_t count;
        const char *name;
        struct cop_list labels, metadata;
        usec_t ttl;
        bool json;
} opt;

static const struct cop_option options[] = {
        {"count", 'n', COP_OPTION_NUMBER, &opt.count, "N", "how many copies (1)"},
        {"name", 0, COP_OPTION_STRING, &opt.name, "NAME", "name of the copy; with several, NAME-1, NAME-2, …"},
        {"label", 'l', COP_OPTION_LIST, &opt.labels, "K=V", "label of each copy; may be repeated"},
        {"metadata", 0, COP_OPTION_LIST, &opt.metadata, "K=V", "data of yours that is kept with each; may be repeated"},
        {"ttl", 't', COP_OPTION_DURATION, &opt.ttl, "TIME", "each ends after this time (30m, 2h); never without"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the saved state and every copy"},
        {0},
};

/* Ids on stdout, failures on stderr: each copy succeeds or fails by itself. */
static int show_copies(struct cop_cli *cli, json_t *reply)
{
        int exit = COP_EXIT_OK;
        json_t *copy;
        size_t i;

        json_array_foreach (json_object_get(reply, "sandboxes"), i, copy) {
                if (!json_is_true(json_object_get(copy, "error"))) {
                        if (!opt.json)
                                puts(cop_member(copy, "id", ""));
                        continue;
                }
                exit = COP_EXIT_ERROR;
                cop_cli_note(cli, "a copy failed: %s", cop_member(copy, "message", "see coppice logs"));
        }
        return exit;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/fork", argv[0]);
        _cleanup_json_ json_t *body = json_object(), *reply = NULL;

        cop_param_u64(body, "count", opt.count);
        cop_param_str(body, "name", opt.name);
        cop_param_seconds(body, "ttl_seconds", opt.ttl);
        if (cop_param_map(body, "labels", &opt.labels, &cli->err) < 0 ||
            cop_param_map(body, "metadata", &opt.metadata, &cli->err) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "POST", path, body, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        return show_copies(cli, reply);
}

const struct cop_verb cop_verb_fork = {
        .name = "fork",
        .args = "SANDBOX",
        .summary = "make live copies, variables and processes included",
        .notes = "Prints the id of each copy. Copies and source share nothing once they write. The status is 1 when a "
                 "copy failed;\n"
                 "the others are there all the same.",
        .examples = "coppice fork demo\n"
                    "coppice fork demo -n 3 --label search=tot --name try\n"
                    "for sb in $(coppice fork demo -n 3); do coppice run $sb 'attempt()' & done; wait",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
