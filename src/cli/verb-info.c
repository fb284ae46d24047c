#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool daemon, json;
} opt;

static const struct cop_option options[] = {
        {"daemon", 'd', COP_OPTION_FLAG, &opt.daemon, NULL, "about the daemon instead of a sandbox"},
        COP_OPTION_JSON(&opt.json),
        {0},
};

static bool is_bytes(const char *key)
{
        size_t n = strlen(key);

        return n > 6 && strcmp(key + n - 6, "_bytes") == 0;
}

static void print_members(json_t *object, int indent);

/* What stands behind a key on its line. */
static void print_scalar(const char *key, json_t *value)
{
        char size[COP_SIZE_MAX];

        if (json_is_integer(value) && is_bytes(key)) {
                puts(cop_format_size((uint64_t)json_integer_value(value), size));
        } else if (json_is_string(value)) {
                cop_print_clean(stdout, json_string_value(value), false);
                putchar('\n');
        } else {
                _cleanup_free_ char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
                puts(text ? text : "");
        }
}

static void print_items(json_t *array, int indent)
{
        json_t *item;
        size_t i;

        json_array_foreach (array, i, item) {
                printf("%*s- ", indent, "");
                if (json_is_object(item)) {
                        puts(cop_member(item, "id", cop_member(item, "name", "")));
                        print_members(item, indent + 2);
                } else {
                        print_scalar("", item);
                }
        }
}

/* One line per member; objects and arrays indented below their name. */
static void print_members(json_t *object, int indent)
{
        const char *key;
        json_t *value;

        json_object_foreach (object, key, value) {
                if (json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0))
                        continue;
                printf("%*s%s", indent, "", key);
                if (json_is_object(value)) {
                        putchar('\n');
                        print_members(value, indent + 2);
                } else if (json_is_array(value)) {
                        putchar('\n');
                        print_items(value, indent + 2);
                } else {
                        int used = indent + (int)strlen(key);
                        printf("%*s", used < 22 ? 23 - used : 1, "");
                        print_scalar(key, value);
                }
        }
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_json_ json_t *reply = NULL;

        if (opt.daemon != (argc == 0))
                return cop_cli_usage(cli, opt.daemon ? "--daemon takes no sandbox" : "which sandbox? (or --daemon)");
        path = opt.daemon ? strdup("/api/info") : cop_cli_path("/api/sandboxes/%s", argv[0]);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                print_members(reply, 0);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_info = {
        .name = "info",
        .args = "SANDBOX | --daemon",
        .summary = "show a sandbox with its limits, usage and contexts, or the daemon",
        .examples = "coppice info demo\n"
                    "coppice info demo --json | jq .usage.memory_bytes\n"
                    "coppice info --daemon --json",
        .options = options,
        .args_max = 1,
        .run = run,
};
