#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        struct cop_list labels;
        const char *state;
        bool all, json, quiet;
} opt;

static const struct cop_option options[] = {
        {"all", 'a', COP_OPTION_FLAG, &opt.all, NULL, "with those that have ended"},
        {"label", 'l', COP_OPTION_LIST, &opt.labels, "K=V", "only those with this label; may be repeated"},
        {"state", 's', COP_OPTION_STRING, &opt.state, "STATE",
         "only those that are running, suspended, ended (or starting, suspending, resuming, ending)"},
        {"quiet", 'q', COP_OPTION_FLAG, &opt.quiet, NULL, "only ids"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "a JSON array"},
        {0},
};

static char *make_path(void)
{
        _cleanup_buf_ struct cop_buf path = COP_BUF(65536);
        int r = cop_buf_addf(&path, "/api/sandboxes?all=%s", opt.all || opt.state ? "true" : "false");

        if (r == 0 && opt.state) {
                _cleanup_free_ char *part = cop_cli_path("&state=%s", opt.state);
                r = part ? cop_buf_adds(&path, part) : -ENOMEM;
        }
        for (size_t i = 0; r == 0 && i < opt.labels.count; i++) {
                _cleanup_free_ char *part = cop_cli_path("&label=%s", opt.labels.items[i]);
                r = part ? cop_buf_adds(&path, part) : -ENOMEM;
        }
        return r == 0 ? cop_buf_take(&path) : NULL;
}

static void add_row(struct cop_table *t, json_t *sandbox)
{
        json_t *image = json_object_get(sandbox, "image"), *contexts = json_object_get(sandbox, "contexts");
        char age[24], kernels[24];
        size_t busy = 0, i;
        json_t *context;

        json_array_foreach (contexts, i, context)
                busy += strcmp(cop_member(context, "state", ""), "busy") == 0;
        snprintf(kernels, sizeof(kernels), busy ? "%zu (%zu busy)" : "%zu", json_array_size(contexts), busy);
        const char *state = cop_member(sandbox, "state", ""), *reason = cop_member(sandbox, "ended_reason", NULL);
        const char *cells[] = {cop_member(sandbox, "id", ""),
                               cop_member(sandbox, "name", ""),
                               reason ? reason : state,
                               json_is_string(image) ? json_string_value(image)
                                                     : cop_member(image, "name", cop_member(image, "id", "")),
                               kernels,
                               cop_age(cop_member(sandbox, "created_at", NULL), age, sizeof(age)),
                               cop_member(sandbox, "expires_at", "")};
        cop_table_add(t, cells);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        static const char *const headings[] = {"ID", "NAME", "STATE", "IMAGE", "CONTEXTS", "AGE", "EXPIRES"};
        _cleanup_free_ char *path = make_path();
        _cleanup_json_ json_t *reply = NULL;
        json_t *sandbox;
        size_t i;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        json_t *list = json_object_get(reply, "sandboxes");
        if (opt.json) {
                cop_print_json(list, cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (list, i, sandbox) {
                if (opt.quiet)
                        puts(cop_member(sandbox, "id", ""));
                else
                        add_row(t, sandbox);
        }
        if (!opt.quiet)
                cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_ls = {
        .name = "ls",
        .args = "",
        .summary = "list sandboxes",
        .examples = "coppice ls\n"
                    "coppice ls --all --label team=a\n"
                    "coppice ls -q | xargs coppice rm",
        .options = options,
        .run = run,
};
