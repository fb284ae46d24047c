#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "resumed.h"
#include "verbs.h"

static struct {
        bool require_memory, json;
} opt;

static const struct cop_option options[] = {
        {"require-memory", 0, COP_OPTION_FLAG, &opt.require_memory, NULL,
         "fail, and keep the saved state, rather than start from the files alone"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole sandbox and how it came back"},
        {0},
};

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/resume", argv[0]);
        _cleanup_json_ json_t *body = json_object();

        if (opt.require_memory)
                json_object_set_new(body, "require_memory", json_true());
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_travel(cli, path, body, opt.json);
}

const struct cop_verb cop_verb_resume = {
        .name = "resume",
        .args = "SANDBOX",
        .summary = "wake a suspended sandbox",
        .notes = "When its memory cannot be restored (another CPU or kernel, a damaged image) it is started from the "
                 "files of the\n"
                 "same instant; the reason is told here, in memoryRestored and resumeReason of --json, and by the next "
                 "cell.",
        .examples = "coppice resume demo\n"
                    "coppice resume demo --require-memory\n"
                    "coppice resume demo --json | jq .memoryRestored",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
