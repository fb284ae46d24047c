#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        const char *name, *image, *from;
        struct cop_list labels, metadata, env;
        usec_t ttl, idle;
        const char *checkpoints, *replay;
        uint64_t memory, pids, nofile, snapshot_keep, retention;
        const char *cpus;
        bool no_kernel, json, persistent, cold;
} opt;

static const struct cop_option options[] = {
        {"name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "a name, unique among live sandboxes"},
        {"image", 'i', COP_OPTION_STRING, &opt.image, "IMAGE", "image id or name (code-interpreter)"},
        {"from", 'f', COP_OPTION_STRING, &opt.from, "SNAPSHOT",
         "start from a saved state, with its variables and processes"},
        {"env", 'e', COP_OPTION_LIST, &opt.env, "K=V", "environment of kernels and commands; may be repeated"},
        {"label", 'l', COP_OPTION_LIST, &opt.labels, "K=V",
         "label, to find it with coppice ls --label; may be repeated"},
        {"metadata", 0, COP_OPTION_LIST, &opt.metadata, "K=V", "data of yours that is kept with it; may be repeated"},
        {"ttl", 't', COP_OPTION_DURATION, &opt.ttl, "TIME", "ends after this time (30m, 2h); never without"},
        {"idle", 0, COP_OPTION_DURATION, &opt.idle, "TIME", "asleep with its memory after this time without use (10m)"},
        {"checkpoints", 0, COP_OPTION_STRING, &opt.checkpoints, "WHEN",
         "after_cell: save the state after every cell, so that each can be undone; before_cell; off (after_cell)"},
        {"replay", 0, COP_OPTION_STRING, &opt.replay, "WHICH",
         "when it wakes without its memory, run its cells again: all, pure (those of run --pure), none (none)"},
        {"persistent", 0, COP_OPTION_FLAG, &opt.persistent, NULL, "never ended by itself, only put to sleep"},
        {"retention", 0, COP_OPTION_NUMBER, &opt.retention, "DAYS", "ended when it has slept for so long (14)"},
        {"snapshot-keep", 0, COP_OPTION_NUMBER, &opt.snapshot_keep, "N",
         "keep its newest N snapshots; older ones are removed (all)"},
        {"memory", 'm', COP_OPTION_SIZE, &opt.memory, "SIZE", "memory limit (2G)"},
        {"cpus", 'c', COP_OPTION_STRING, &opt.cpus, "N", "CPUs, also fractions (all)"},
        {"pids", 0, COP_OPTION_NUMBER, &opt.pids, "N", "limit of processes and threads (512)"},
        {"nofile", 0, COP_OPTION_NUMBER, &opt.nofile, "N", "limit of open files per process"},
        {"cold", 0, COP_OPTION_FLAG, &opt.cold, NULL,
         "boot, although the image has a golden state (coppice image warm)"},
        {"no-kernel", 0, COP_OPTION_FLAG, &opt.no_kernel, NULL, "do not start the Python kernel yet"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole sandbox, not just its id"},
        {0},
};

static json_t *make_body(struct cop_cli *cli)
{
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "name", opt.name);
        cop_param_str(body, "image", opt.image);
        cop_param_str(body, "from", opt.from);
        if (cop_param_map(body, "env", &opt.env, &cli->err) < 0 ||
            cop_param_map(body, "labels", &opt.labels, &cli->err) < 0 ||
            cop_param_map(body, "metadata", &opt.metadata, &cli->err) < 0 ||
            cop_param_number(body, "cpus", opt.cpus, &cli->err) < 0)
                return NULL;
        cop_param_seconds(body, "ttl_seconds", opt.ttl);
        cop_param_u64(body, "memory", opt.memory);
        cop_param_u64(body, "pids", opt.pids);
        cop_param_u64(body, "nofile", opt.nofile);
        if (opt.no_kernel)
                json_object_set_new(body, "start_kernel", json_false());
        if (opt.cold)
                json_object_set_new(body, "golden", json_false());
        _cleanup_json_ json_t *policy = json_object();
        cop_param_str(policy, "checkpoints", opt.checkpoints);
        cop_param_str(policy, "replay", opt.replay);
        cop_param_seconds(policy, "idle_seconds", opt.idle);
        cop_param_u64(policy, "retention_days", opt.retention);
        cop_param_u64(policy, "snapshot_keep", opt.snapshot_keep);
        if (opt.persistent)
                json_object_set_new(policy, "persistent", json_true());
        if (json_object_size(policy) > 0)
                json_object_set(body, "policy", policy);
        return TAKE_PTR(body);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = make_body(cli), *sandbox = NULL;

        if (!body)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "POST", "/api/sandboxes", body, &sandbox))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(sandbox, cli->out_tty);
        else
                puts(cop_member(sandbox, "id", ""));
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_new = {
        .name = "new",
        .args = "",
        .summary = "start a sandbox and print its id",
        .examples = "coppice new --name demo\n"
                    "coppice new --memory 4G --cpus 2 --ttl 2h --env TOKEN=abc\n"
                    "coppice new --from clean-data --name b1\n"
                    "coppice new --name lab --checkpoints off --idle 30m\n"
                    "sb=$(coppice new) && coppice run $sb 'print(6 * 7)'",
        .options = options,
        .run = run,
};
