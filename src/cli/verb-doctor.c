/* coppice doctor: what this host has and lacks.  With a daemon its own checks are shown; without one those that need none, so
 * that somebody whose daemon does not start still learns why. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checks.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "print.h"
#include "start.h"
#include "verbs.h"

static bool json;
static const struct cop_option options[] = {COP_OPTION_JSON(&json), {0}};

static int spawn_probe(const char *keeper, const char *home, pid_t *ret_pid, int *ret_fd, struct cop_error *err)
{
        const struct cop_child_spec spec = {
                .path = keeper,
                .argv = (const char *const[]){"coppice-keeper", "--probe", home, NULL},
        };
        return cop_child_spawn_output(&spec, ret_pid, ret_fd, err);
}

/* The same probe that a daemon would ask: it lies beside coppiced. */
static json_t *probe_host(const char *daemon, const struct cop_place *place)
{
        _cleanup_buf_ struct cop_buf text = COP_BUF(65536);
        _cleanup_close_ int fd = -EBADF;
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;
        char keeper[COP_HOME_PATH_MAX + 32];
        ssize_t n = 1;
        pid_t pid;

        const char *slash = strrchr(daemon, '/');
        int r = cop_path_format(keeper, sizeof(keeper), "%.*s/coppice-keeper", slash ? (int)(slash - daemon) : 0,
                                daemon);
        if (r == 0)
                r = spawn_probe(keeper, stat(place->home, &st) == 0 ? place->home : NULL, &pid, &fd, &err);
        while (r == 0 && n > 0)
                n = cop_buf_read(&text, fd, 4096);
        if (r == 0)
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        json_t *checks = cop_checks_parse(text.len ? text.data : "", text.len);
        cop_checks_add(checks, "keeper", json_array_size(checks) > 0, true, err.errnum ? err.message : keeper,
                       "install coppice-keeper beside coppiced");
        return checks;
}

static void check_home(json_t *checks, const struct cop_place *place)
{
        char detail[COP_HOME_PATH_MAX + 64], size[COP_SIZE_MAX];
        struct statvfs st;
        bool there = statvfs(place->home, &st) == 0;
        uint64_t free_bytes = there ? (uint64_t)st.f_bavail * st.f_frsize : 0;

        snprintf(detail, sizeof(detail), there ? "%s, %s free" : "%s does not exist yet", place->home,
                 cop_format_size(free_bytes, size));
        cop_checks_add(checks, "home", !there || free_bytes > (2ull << 30), true, detail,
                       "free some space, or set COPPICE_HOME to a place with 2 GiB");
}

static void check_programs(json_t *checks)
{
        static const char *const names[] = {"mmdebstrap", "jq", "zstd", "bsdtar"};
        const char *search = getenv("PATH");

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                _cleanup_free_ char *copy = strdup(search ? search : "");
                char *rest = copy, path[4096] = "";
                bool found = false;
                for (char *folder; copy && !found && (folder = strsep(&rest, ":"));)
                        found = cop_path_format(path, sizeof(path), "%s/%s", folder, names[i]) == 0 &&
                                access(path, X_OK) == 0;
                cop_checks_add(checks, names[i], found, false, found ? path : "not in PATH",
                               "needed to make images: run make deps");
        }
}

static json_t *check_here(const struct cop_place *place)
{
        struct cop_error err = COP_ERROR_NULL;
        char program[COP_HOME_PATH_MAX];

        bool found = cop_daemon_path(program, sizeof(program), &err) == 0;
        json_t *checks = found ? probe_host(program, place) : json_array();
        check_home(checks, place);
        check_programs(checks);
        cop_checks_add(checks, "coppiced", found, true, found ? program : err.message, "build it with make");
        cop_checks_add(checks, "daemon", true, false, "not running; any coppice command starts it", NULL);
        return json_pack("{s:b,s:o}", "ok", cop_checks_pass(checks), "checks", checks);
}

static void print_check(struct cop_cli *cli, json_t *check)
{
        bool ok = json_is_true(json_object_get(check, "ok"));
        const char *remedy = cop_member(check, "remedy", "");

        cop_print_colour(stdout, cli->out_colour, ok ? COP_GREEN : COP_RED, ok ? "ok  " : "FAIL");
        printf(" %-16s %s\n", cop_member(check, "name", ""), cop_member(check, "detail", ""));
        if (!ok && *remedy)
                printf("     %-16s -> %s\n", "", remedy);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *report = NULL;
        struct cop_place place;
        json_t *check;
        size_t i;

        if (cop_place_find(&place, &cli->err) < 0)
                return cop_cli_fail(cli);
        if (!cop_cli_find(cli) || cop_client_call(cli->client, "GET", "/api/doctor", NULL, &report, &cli->err) < 0)
                report = check_here(&place);
        if (json) {
                cop_print_json(report, cli->out_tty);
        } else {
                json_array_foreach (json_object_get(report, "checks"), i, check)
                        print_check(cli, check);
        }
        return json_is_true(json_object_get(report, "ok")) ? COP_EXIT_OK : COP_EXIT_ERROR;
}

const struct cop_verb cop_verb_doctor = {
        .name = "doctor",
        .args = "",
        .summary = "check what this host has, and say what to do about what it lacks",
        .examples = "coppice doctor",
        .options = options,
        .run = run,
};
