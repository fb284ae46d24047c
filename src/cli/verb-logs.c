#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "interrupt.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool follow, json;
} opt;

static const struct cop_option options[] = {
        {"follow", 'f', COP_OPTION_FLAG, &opt.follow, NULL, "go on as things happen, until Ctrl-C"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "one JSON object a line, as recorded"},
        {0},
};

/* Foreign text under its line, each of its own lines behind `mark`. */
static void print_block(const char *mark, const char *text)
{
        while (*text) {
                size_t n = strcspn(text, "\n");
                _cleanup_free_ char *line = strndup(text, n);
                printf("    %s ", mark);
                cop_print_clean(stdout, line ? line : "", false);
                putchar('\n');
                text += n + (text[n] == '\n');
        }
}

static void print_cell(json_t *entry)
{
        json_t *error = json_object_get(entry, "error"), *count = json_object_get(entry, "execution_count");

        if (json_integer_value(count) > 0)
                printf("cell #%lld %s", (long long)json_integer_value(count), cop_member(entry, "status", ""));
        else
                printf("cell %s", cop_member(entry, "status", ""));
        if (strcmp(cop_member(entry, "context_id", "default"), "default") != 0)
                printf(" in %s", cop_member(entry, "context_id", ""));
        putchar('\n');
        print_block(">", cop_member(entry, "code", ""));
        print_block("|", cop_member(entry, "stdout", ""));
        print_block("!", cop_member(entry, "stderr", ""));
        if (json_is_object(error))
                printf("    ! %s: %s\n", cop_member(error, "name", "error"), cop_member(error, "value", ""));
}

static void print_command(json_t *entry)
{
        json_t *code = json_object_get(entry, "exit_code");
        _cleanup_free_ char *text = cop_command_text(entry);

        printf("command %lld %s", (long long)json_integer_value(json_object_get(entry, "pid")),
               cop_member(entry, "status", ""));
        if (json_is_integer(code))
                printf(" with status %lld", (long long)json_integer_value(code));
        putchar('\n');
        print_block("$", text ? text : "");
        print_block("|", cop_member(entry, "stdout", ""));
        print_block("!", cop_member(entry, "stderr", ""));
}

static int on_event(json_t *entry, void *userdata)
{
        const char *type = cop_member(entry, "type", "event");

        if (opt.json) {
                json_dumpf(entry, stdout, JSON_COMPACT);
                putchar('\n');
                fflush(stdout);
                return ferror(stdout);
        }
        if (strcmp(type, "command.ended") == 0 || strcmp(type, "cell.ended") == 0)
                return 0; /* the entry beside it says more */
        printf("%s ", cop_member(entry, "at", ""));
        if (strcmp(type, "cell") == 0) {
                print_cell(entry);
        } else if (strcmp(type, "command") == 0) {
                print_command(entry);
        } else {
                const char *reason =
                        cop_member(entry, "reason", cop_member(json_object_get(entry, "detail"), "reason", NULL));
                printf("%s%s%s\n", type, reason ? ": " : "", reason ? reason : "");
        }
        fflush(stdout);
        return ferror(stdout);
}

static int on_interrupt(void *userdata)
{
        return cop_interrupt_take() != 0;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path =
                cop_cli_path(opt.follow ? "/api/sandboxes/%s/logs?follow=true" : "/api/sandboxes/%s/logs", argv[0]);
        struct cop_stream_request request = {.method = "GET",
                                             .path = path,
                                             .event = on_event,
                                             .wake_fd = cop_interrupt_catch(),
                                             .woken = on_interrupt};

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || cop_client_stream(cli->client, &request, &cli->err) < 0)
                return cop_cli_fail(cli);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_logs = {
        .name = "logs",
        .args = "SANDBOX",
        .summary = "what happened in a sandbox, in order: events, cells, commands",
        .examples = "coppice logs demo\n"
                    "coppice logs demo -f",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
