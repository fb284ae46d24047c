#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        const char *name, *kind;
        usec_t expires;
        bool force, json;
} opt;

static const struct cop_option make_options[] = {
        {"name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "a name, unique among snapshots"},
        {"kind", 'k', COP_OPTION_STRING, &opt.kind, "KIND",
         "memory: files, variables and processes (default); filesystem: files"},
        {"expires", 0, COP_OPTION_DURATION, &opt.expires, "TIME", "removed after this time (12h, 7d); never without"},
        COP_OPTION_JSON(&opt.json),
        {0},
};
static const struct cop_option list_options[] = {COP_OPTION_JSON(&opt.json), {0}};
static const struct cop_option remove_options[] = {
        {"force", 'f', COP_OPTION_FLAG, &opt.force, NULL, "no error for one that is not there"},
        COP_OPTION_JSON(&opt.json),
        {0},
};

static int make(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/snapshots", argv[0]);
        _cleanup_json_ json_t *body = json_object(), *node = NULL;

        if (opt.kind && strcmp(opt.kind, "memory") != 0 && strcmp(opt.kind, "filesystem") != 0)
                return cop_cli_usage(cli, "--kind is memory or filesystem, not \"%s\"", opt.kind);
        cop_param_str(body, "name", opt.name);
        cop_param_str(body, "kind", opt.kind);
        cop_param_seconds(body, "expires_seconds", opt.expires);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "POST", path, body, &node))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(node, cli->out_tty);
        else
                puts(cop_member(node, "id", ""));
        return COP_EXIT_OK;
}

static void add_row(struct cop_table *t, json_t *node)
{
        char age[24], memory[COP_SIZE_MAX], files[COP_SIZE_MAX];
        const char *cells[] = {
                cop_member(node, "id", ""),
                cop_member(node, "name", ""),
                cop_member(node, "kind", ""),
                cop_member(node, "sandbox_id", ""),
                cop_age(cop_member(node, "created_at", NULL), age, sizeof(age)),
                cop_format_size((uint64_t)json_integer_value(json_object_get(node, "memory_bytes")), memory),
                cop_format_size((uint64_t)json_integer_value(json_object_get(node, "file_bytes")), files),
                cop_member(node, "expires_at", ""),
        };

        cop_table_add(t, cells);
}

static int list(struct cop_cli *cli, size_t argc, char **argv)
{
        static const char *const headings[] = {"ID", "NAME", "KIND", "SANDBOX", "AGE", "MEMORY", "FILES", "EXPIRES"};
        _cleanup_json_ json_t *reply = NULL;
        json_t *node;
        size_t i;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "GET", "/api/snapshots", NULL, &reply))
                return COP_EXIT_ERROR;
        json_t *snapshots = json_object_get(reply, "snapshots");
        if (opt.json) {
                cop_print_json(snapshots, cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (snapshots, i, node)
                add_row(t, node);
        cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

static int remove_one(struct cop_cli *cli, const char *ref)
{
        _cleanup_free_ char *path = cop_cli_path("/api/snapshots/%s", ref);
        _cleanup_json_ json_t *node = NULL;

        if (!path || cop_client_call(cli->client, "DELETE", path, NULL, &node, &cli->err) < 0)
                return opt.force && cli->err.code == COP_ERR_node_not_found ? COP_EXIT_OK : cop_cli_fail(cli);
        if (opt.json)
                cop_print_json(node, cli->out_tty);
        else
                puts(cop_member(node, "id", ref));
        return COP_EXIT_OK;
}

static int remove_some(struct cop_cli *cli, size_t argc, char **argv)
{
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_each(cli, argc, argv, remove_one);
}

const struct cop_verb cop_verb_snapshot = {
        .name = "snapshot",
        .args = "SANDBOX",
        .summary = "save the state of a sandbox, which runs on",
        .notes = "Prints the id of the saved state. Snapshots outlive the sandbox they were taken of, until they are "
                 "removed, "
                 "expire, or\nthe sandbox has --snapshot-keep newer ones (coppice new).",
        .examples = "coppice snapshot demo --name clean-data\n"
                    "coppice snapshot demo --name data-only --kind filesystem\n"
                    "coppice snapshot demo --name before-release --expires 7d\n"
                    "coppice new --from clean-data",
        .options = make_options,
        .args_min = 1,
        .args_max = 1,
        .run = make,
};

const struct cop_verb cop_verb_snapshot_ls = {
        .name = "snapshot ls",
        .args = "",
        .summary = "list snapshots, the oldest first",
        .examples = "coppice snapshot ls\n"
                    "coppice snapshot ls --json | jq -r '.[].name'",
        .options = list_options,
        .run = list,
};

const struct cop_verb cop_verb_snapshot_rm = {
        .name = "snapshot rm",
        .args = "SNAPSHOT…",
        .summary = "remove snapshots",
        .notes = "One that other states or sandboxes stand on only loses its name, and goes with the last of them.",
        .examples = "coppice snapshot rm clean-data",
        .options = remove_options,
        .args_min = 1,
        .args_max = 1000,
        .run = remove_some,
};
