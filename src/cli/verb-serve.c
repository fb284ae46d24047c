#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "start.h"
#include "verbs.h"

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        char program[COP_HOME_PATH_MAX];
        char *args[COP_LIST_MAX + 2] = {(char *)"coppiced"};

        if (argc > COP_LIST_MAX)
                return cop_cli_usage(cli, "too many arguments");
        if (cop_daemon_path(program, sizeof(program), &cli->err) < 0) {
                cop_cli_fail(cli);
                return COP_EXIT_NO_DAEMON;
        }
        memcpy(args + 1, argv, argc * sizeof(*argv));
        execv(program, args);
        cop_error_errno(&cli->err, errno, "starting %s", program);
        cop_cli_fail(cli);
        return COP_EXIT_NO_DAEMON;
}

const struct cop_verb cop_verb_serve = {
        .name = "serve",
        .args = "[OPTION…]",
        .summary = "run the daemon in the foreground",
        .notes = "Options are those of coppiced: see coppice serve --help.",
        .examples = "coppice serve\n"
                    "coppice serve --listen 127.0.0.1:8000",
        .args_max = COP_LIST_MAX,
        .run = run,
        .passes_options = true,
};
