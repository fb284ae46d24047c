/* coppice pack, coppice unpack: a saved state as one file, for another machine. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

static struct {
        const char *output, *name;
        bool files_only, json;
} opt;

static const struct cop_option pack_options[] = {
        {"output", 'o', COP_OPTION_STRING, &opt.output, "FILE", "where to write it; - is standard output"},
        {0},
};
static const struct cop_option unpack_options[] = {
        {"name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "a name for it here (default: the one it had, if free)"},
        {"files-only", 0, COP_OPTION_FLAG, &opt.files_only, NULL, "leave its processes and memory out"},
        COP_OPTION_JSON(&opt.json),
        {0},
};

/* Into a file beside the one that was asked for, which takes its name when it is whole. */
static int pack_to_file(struct cop_cli *cli, const char *path)
{
        _cleanup_free_ char *part = NULL;

        if (asprintf(&part, "%s.part", opt.output) < 0)
                return cop_error_errno(&cli->err, ENOMEM, "packing");
        _cleanup_close_ int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
                return cop_error_errno(&cli->err, errno, "creating %s", part);
        const struct cop_transfer t = {.method = "GET", .path = path, .fd = fd};
        int r = cop_client_transfer(cli->client, &t, NULL, &cli->err);
        if (r >= 0 && (fsync(fd) < 0 || rename(part, opt.output) < 0))
                r = cop_error_errno(&cli->err, errno, "writing %s", opt.output);
        if (r < 0)
                unlink(part);
        return r;
}

static int pack(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/snapshots/%s/pack", argv[0]);
        int r;

        if (!opt.output || !*opt.output)
                return cop_cli_usage(cli, "say where to write it: -o FILE, or -o - for standard output");
        if (strcmp(opt.output, "-") == 0 && cli->out_tty)
                return cop_cli_usage(cli, "a pack is not for a terminal: -o FILE, or redirect standard output");
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (strcmp(opt.output, "-") == 0) {
                const struct cop_transfer t = {.method = "GET", .path = path, .fd = STDOUT_FILENO};
                r = path ? cop_client_transfer(cli->client, &t, NULL, &cli->err) : -ENOMEM;
        } else {
                r = path ? pack_to_file(cli, path) : -ENOMEM;
        }
        if (!path)
                cop_error_errno(&cli->err, ENOMEM, "packing");
        return r < 0 ? cop_cli_fail(cli) : COP_EXIT_OK;
}

static int unpack(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path =
                opt.name ? cop_cli_path("/api/snapshots?files_only=%s&name=%s", opt.files_only ? "true" : "false",
                                        opt.name)
                         : cop_cli_path("/api/snapshots?files_only=%s", opt.files_only ? "true" : "false");
        bool standard = strcmp(argv[0], "-") == 0;
        _cleanup_close_ int fd = standard ? STDIN_FILENO : open(argv[0], O_RDONLY | O_CLOEXEC);
        _cleanup_json_ json_t *node = NULL;
        struct stat st;

        if (!path || fd < 0 || fstat(fd, &st) < 0) {
                cop_error_errno(&cli->err, path ? errno : ENOMEM, "opening %s", argv[0]);
                return cop_cli_fail(cli);
        }
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        const struct cop_transfer t = {.method = "POST",
                                       .path = path,
                                       .fd = fd,
                                       .upload = true,
                                       .size = S_ISREG(st.st_mode) && !standard ? (uint64_t)st.st_size : UINT64_MAX};
        if (cop_client_transfer(cli->client, &t, &node, &cli->err) < 0)
                return cop_cli_fail(cli);
        if (opt.json)
                cop_print_json(node, cli->out_tty);
        else
                puts(cop_member(node, "id", ""));
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_pack = {
        .name = "pack",
        .args = "SNAPSHOT",
        .summary = "write a saved state to a file, for another machine",
        .notes = "Files, processes and memory, with whatever secrets they hold; not the image, which the other machine "
                 "must have.\nSNAPSHOT is a name or the id of any saved state (coppice log).",
        .examples = "coppice pack clean-data -o clean-data.tar.zst\n"
                    "coppice pack nd_4k2j9x01ab -o - | ssh other coppice unpack - --name clean-data",
        .options = pack_options,
        .args_min = 1,
        .args_max = 1,
        .run = pack,
};

const struct cop_verb cop_verb_unpack = {
        .name = "unpack",
        .args = "FILE",
        .summary = "take up a saved state that coppice pack wrote",
        .notes = "Prints its new id. Its image is found by its digest. Memory needs the kernel it was saved on and a "
                 "CPU with the\nsame features; --files-only takes the files alone. Whoever made the pack decides what "
                 "runs in sandboxes made from it.",
        .examples = "coppice unpack clean-data.tar.zst\n"
                    "coppice unpack clean-data.tar.zst --name theirs --files-only\n"
                    "coppice new --from \"$(coppice unpack clean-data.tar.zst)\"",
        .options = unpack_options,
        .args_min = 1,
        .args_max = 1,
        .run = unpack,
};
