#include <stdio.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool dry_run, json;
} opt;

static const struct cop_option options[] = {
        {"dry-run", 'n', COP_OPTION_FLAG, &opt.dry_run, NULL, "only say what would go"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "as JSON"},
        {0},
};

static uint64_t bytes_of(json_t *object, const char *key)
{
        return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void show(struct cop_cli *cli, json_t *reply)
{
        static const char *const headings[] = {"WHAT", "BYTES", "REASON"};
        struct cop_table *table = cop_table_new(3, headings);
        size_t gone = 0, i;
        char size[COP_SIZE_MAX];
        json_t *item;

        json_array_foreach (json_object_get(reply, "items"), i, item) {
                if (!opt.dry_run && !json_is_true(json_object_get(item, "removed")))
                        continue;
                gone++;
                cop_table_add(table, (const char *const[]){cop_member(item, "path", ""),
                                                           cop_format_size(bytes_of(item, "bytes"), size),
                                                           cop_member(item, "reason", "")});
        }
        if (gone > 0)
                cop_table_print(table);
        cop_table_free(table);
        cop_cli_note(cli, "%zu removed%s, %s", gone, opt.dry_run ? " if it were no dry run" : "",
                     cop_format_size(bytes_of(reply, "freed_bytes"), size));
        if (json_is_true(json_object_get(reply, "more")))
                cop_cli_note(cli, "there is more: run it again");
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = json_pack("{s:b}", "dry_run", opt.dry_run), *reply = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "POST", "/api/gc", body, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                show(cli, reply);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_gc = {
        .name = "gc",
        .args = "",
        .summary = "delete saved states and folders that nobody needs",
        .notes = "Most of it goes by itself when the last that needed it goes. What has a name, what a sandbox that "
                 "has not "
                 "ended may go\n"
                 "back to, and what these stand on always stays. BYTES is what the disk gets back: a file that "
                 "something "
                 "else still\n"
                 "links to counts nothing.",
        .examples = "coppice gc --dry-run\n"
                    "coppice gc --json | jq .freed_bytes",
        .options = options,
        .run = run,
};
