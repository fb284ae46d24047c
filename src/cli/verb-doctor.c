/* coppice doctor: what this host has and lacks.  With a daemon its own checks are shown; without one a few that need none, so
 * that somebody whose daemon does not start still learns why. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "print.h"
#include "start.h"
#include "verbs.h"

#define KERNEL_WANTED "5.19" /* idmapped mounts below overlayfs */

static bool json;
static const struct cop_option options[] = {COP_OPTION_JSON(&json), {0}};

static void add(json_t *checks, const char *name, bool ok, const char *detail, const char *remedy)
{
        json_array_append_new(checks, json_pack("{s:s,s:b,s:s,s:s?}", "name", name, "ok", ok, "detail", detail,
                                                "remedy", ok ? NULL : remedy));
}

static void check_kernel(json_t *checks)
{
        struct utsname u;
        int major = 0, minor = 0;

        if (uname(&u) < 0)
                return;
        sscanf(u.release, "%d.%d", &major, &minor);
        add(checks, "kernel", major > 5 || (major == 5 && minor >= 19), u.release,
            "Linux " KERNEL_WANTED " or newer is needed");
}

/* In a child, since a process cannot leave a namespace again. */
static void check_namespaces(json_t *checks)
{
        static const int kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                                 CLONE_NEWUTS | CLONE_NEWCGROUP;
        int status = 0;
        pid_t pid = fork();

        if (pid == 0)
                _exit(unshare(kinds) < 0 ? errno : 0);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        bool ok = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        add(checks, "namespaces", ok, ok ? "user, mount, pid, net, ipc, uts and cgroup" : strerror(WEXITSTATUS(status)),
            "allow them: sysctl user.max_user_namespaces=65536, and kernel.unprivileged_userns_clone=1 where it "
            "exists");
}

static void check_overlay(json_t *checks)
{
        _cleanup_free_ char *list = NULL;
        bool ok = cop_read_file(AT_FDCWD, "/proc/filesystems", 65536, &list, NULL, NULL) == 0 &&
                  strstr(list, "\toverlay\n");

        add(checks, "overlayfs", ok, ok ? "available" : "not in /proc/filesystems", "load it: modprobe overlay");
}

static void check_cgroups(json_t *checks)
{
        bool v2 = access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0,
             v1 = access("/sys/fs/cgroup/memory", X_OK) == 0;

        add(checks, "cgroups", v2 || v1,
            v2   ? "version 2"
            : v1 ? "version 1"
                 : "none",
            "mount them (mount -t cgroup2 none /sys/fs/cgroup); without them there are no limits");
}

static void check_home(json_t *checks, const struct cop_place *place)
{
        char detail[COP_HOME_PATH_MAX + 64], size[COP_SIZE_MAX];
        struct statvfs st;
        bool there = statvfs(place->home, &st) == 0;
        uint64_t free_bytes = there ? (uint64_t)st.f_bavail * st.f_frsize : 0;

        snprintf(detail, sizeof(detail), there ? "%s, %s free" : "%s does not exist yet", place->home,
                 cop_format_size(free_bytes, size));
        add(checks, "home", !there || free_bytes > (2ull << 30), detail,
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
                add(checks, names[i], found, found ? path : "not in PATH", "needed to make images: run make deps");
        }
}

static void check_daemon(json_t *checks, const struct cop_place *place)
{
        char program[COP_HOME_PATH_MAX];
        struct cop_error err = COP_ERROR_NULL;
        bool found = cop_daemon_path(program, sizeof(program), &err) == 0;

        add(checks, "coppiced", found, found ? program : err.message, "build it with make");
        add(checks, "daemon", true, "not running; any coppice command starts it", NULL);
}

static json_t *check_here(const struct cop_place *place)
{
        json_t *checks = json_array();
        bool ok = true;
        json_t *check;
        size_t i;

        check_kernel(checks);
        check_namespaces(checks);
        check_overlay(checks);
        check_cgroups(checks);
        check_home(checks, place);
        check_programs(checks);
        check_daemon(checks, place);
        json_array_foreach (checks, i, check)
                ok = ok && json_is_true(json_object_get(check, "ok"));
        return json_pack("{s:b,s:o}", "ok", ok, "checks", checks);
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
