#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "cli.h"
#include "download.h"
#include "verbs.h"

static struct {
        const char *output, *context;
        bool undone;
} opt;

static const struct cop_option options[] = {
        {"output", 'o', COP_OPTION_STRING, &opt.output, "FILE", "into this file instead of to standard output"},
        {"context", 'c', COP_OPTION_STRING, &opt.context, "CONTEXT", "the cells of this context (default)"},
        {"undone", 'u', COP_OPTION_FLAG, &opt.undone, NULL, "also the cells that were undone"},
        {0},
};

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/notebook?context=%s&undone=%s", argv[0],
                                                 opt.context ? opt.context : "default", opt.undone ? "1" : "0");

        signal(SIGPIPE, SIG_IGN);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path)
                cop_error_errno(&cli->err, ENOMEM, "export");
        if (!path || cop_download(cli->client, path, opt.output ? opt.output : "-", NULL, NULL, &cli->err) < 0)
                return cop_cli_fail(cli);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_export = {
        .name = "export",
        .args = "SANDBOX",
        .summary = "write the session as a Jupyter notebook",
        .notes = "The cells that led to the present state, with outputs, errors and times; without what was undone.\n"
                 "A copy begins with the cells of the session it was forked from. What sleeps goes on sleeping.\n"
                 "coppice import runs it again.",
        .examples = "coppice export demo -o session.ipynb\n"
                    "coppice export demo --context analysis --undone | jq '.cells | length'",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
