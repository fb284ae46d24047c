#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "resumed.h"
#include "verbs.h"

static struct {
        const char *replay, *cpus;
        uint64_t memory;
        bool require_memory, wait, json;
} opt;

static const struct cop_option options[] = {
        {"require-memory", 0, COP_OPTION_FLAG, &opt.require_memory, NULL,
         "fail, and keep the saved state, rather than start from the files alone"},
        {"replay", 'r', COP_OPTION_STRING, &opt.replay, "WHICH",
         "when its memory is lost, run its cells again: all, pure (those of run --pure), none (its policy)"},
        {"wait", 'w', COP_OPTION_FLAG, &opt.wait, NULL,
         "return when its kernels answer, too; those of a cold boot take a moment longer than the sandbox"},
        {"memory", 'm', COP_OPTION_SIZE, &opt.memory, "SIZE", "another memory limit from now on"},
        {"cpus", 'c', COP_OPTION_STRING, &opt.cpus, "N", "other CPUs from now on"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole sandbox and how it came back"},
        {0},
};

struct resuming {
        struct cop_cli *cli;
        json_t *sandbox; /* owned */
};

static int on_event(json_t *event, void *userdata)
{
        struct resuming *r = userdata;
        json_t *cell = json_object_get(event, "replayed");

        if (strcmp(cop_member(event, "type", ""), "end") == 0) {
                json_decref(r->sandbox);
                r->sandbox = json_incref(json_object_get(event, "sandbox"));
        } else if (json_is_object(cell)) {
                cop_cli_note(r->cli, "%s: %s %s%s", cop_member(event, "message", ""), cop_member(cell, "cell_id", ""),
                             cop_member(cell, "status", ""),
                             json_is_false(json_object_get(cell, "same_outcome")) ? ", not as before" : "");
        }
        return 0;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/resume", argv[0]);
        _cleanup_json_ json_t *body = json_object();
        struct resuming r = {.cli = cli};
        struct cop_stream_request request = {
                .method = "POST", .path = path, .body = body, .event = on_event, .wake_fd = -EBADF, .userdata = &r};

        if (opt.require_memory)
                json_object_set_new(body, "require_memory", json_true());
        if (opt.wait)
                json_object_set_new(body, "wait", json_true());
        cop_param_str(body, "replay", opt.replay);
        cop_param_u64(body, "memory", opt.memory);
        if (cop_param_number(body, "cpus", opt.cpus, &cli->err) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!opt.replay)
                return cop_cli_travel(cli, path, body, opt.json);
        if (cop_client_stream(cli->client, &request, &cli->err) < 0)
                return cop_cli_fail(cli);
        if (!r.sandbox) {
                cop_cli_note(cli, "the stream ended before the sandbox was awake");
                return COP_EXIT_ERROR;
        }
        cop_cli_print_resumed(cli, r.sandbox, opt.json);
        json_decref(r.sandbox);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_resume = {
        .name = "resume",
        .args = "SANDBOX",
        .summary = "wake a suspended sandbox",
        .notes = "When its memory cannot be restored (another CPU or kernel, a damaged image) it is started from the "
                 "files of the\n"
                 "same instant; the reason is told here, in memoryRestored and resumeReason of --json, and by the next "
                 "cell.\n"
                 "With --replay the cells that had made the memory are then run again, in order; one that fails is "
                 "told and "
                 "the next one runs.",
        .examples = "coppice resume demo\n"
                    "coppice resume demo --require-memory\n"
                    "coppice resume demo --memory 4G --cpus 2\n"
                    "coppice resume demo --replay all\n"
                    "coppice resume demo --wait && coppice context ls demo    # idle, never starting\n"
                    "coppice resume demo --json | jq .memoryRestored",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
