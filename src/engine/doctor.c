/* What this host lacks, and what to do about it.  A check that is not `needed` explains a feature that will not work.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "base/fs.h"
#include "base/parse.h"
#include "engine/internal.h"
#include "sandbox/cgroup.h"

#define SPACE_NEEDED (2ULL << 30)

struct report {
        struct cop_engine *engine;
        json_t *checks;
        bool ok;
};

static void add(struct report *r, const char *name, bool ok, bool needed, const char *detail, const char *remedy)
{
        json_array_append_new(r->checks, json_pack("{s:s, s:b, s:b, s:s, s:s?}", "name", name, "ok", ok, "needed",
                                                   needed, "detail", detail, "remedy", ok ? NULL : remedy));
        if (needed && !ok)
                r->ok = false;
}

static void check_kernel(struct report *r)
{
        struct utsname u;
        unsigned major = 0, minor = 0;
        char detail[200];

        uname(&u);
        bool read = sscanf(u.release, "%u.%u", &major, &minor) == 2;
        snprintf(detail, sizeof(detail), "Linux %s", u.release);
        /* 5.12: idmapped mounts; overlayfs inside a user namespace with userxattr came with 5.11; idmapped layers
         * with 5.19. */
        add(r, "kernel", read && (major > 5 || (major == 5 && minor >= 19)), true, detail, "run Linux 5.19 or newer");
}

static void check_privilege(struct report *r)
{
        char detail[100];

        snprintf(detail, sizeof(detail), "coppiced runs as uid %u", (unsigned)geteuid());
        add(r, "privilege", geteuid() == 0, true, detail, "start coppiced as root");
}

/* Whether the file holds a number above 0; a missing file means no such limit. */
static bool allows(const char *path)
{
        _cleanup_free_ char *word = NULL;

        return cop_read_word(AT_FDCWD, path, &word, NULL) < 0 || atoll(word) > 0;
}

static void check_namespaces(struct report *r)
{
        static const char *const kinds[] = {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"};
        char missing[100] = "", path[64];

        for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
                snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
                if (access(path, F_OK) < 0)
                        snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", kinds[i]);
        }
        char detail[160];
        snprintf(detail, sizeof(detail), "%s%s", missing[0] ? "missing:" : "all are there", missing);
        add(r, "namespaces", !missing[0], true, detail, "use a kernel with these namespaces built in");
        bool allowed = allows("/proc/sys/user/max_user_namespaces") &&
                       (geteuid() == 0 || allows("/proc/sys/kernel/unprivileged_userns_clone"));
        add(r, "user_namespaces", allowed, true, allowed ? "allowed" : "switched off",
            "sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1");
}

static void check_overlay(struct report *r)
{
        _cleanup_free_ char *text = NULL;
        size_t n;

        bool there = cop_read_file(AT_FDCWD, "/proc/filesystems", 65536, &text, &n, NULL) == 0 &&
                     strstr(text, "\toverlay\n");
        add(r, "overlayfs", there, true, there ? "available" : "not known to the kernel", "modprobe overlay");
}

static void check_cgroup(struct report *r)
{
        struct cop_cgroup_host host = {0};
        struct cop_error err = COP_ERROR_NULL;

        bool ok = cop_cgroup_detect(&host, &err) >= 0;
        add(r, "cgroup", ok, true, ok ? host.v2 ? "version 2" : "version 1" : err.message,
            "mount cgroup v2 at /sys/fs/cgroup with the controllers memory, cpu and pids, or the v1 hierarchies");
        if (ok)
                cop_cgroup_host_done(&host);
}

static void check_cgroup_moves(struct report *r)
{
        int fd = r->engine->cgroup_moves_fd;

        add(r, "cgroup_moves", fd >= 0, false,
            fd >= 0          ? "quick (favordynmods)"
            : fd == -ENOTSUP ? "slow: COPPICE_SLOW_CGROUPS is set"
                             : strerror(-fd),
            "run Linux 6.0 or newer with cgroup v1 built in: starting and waking take 10 to 20 ms longer without");
}

static void check_space(struct report *r)
{
        struct statvfs st;
        char size[COP_SIZE_MAX], detail[4300];

        if (statvfs(r->engine->home, &st) < 0) {
                add(r, "disk", false, true, strerror(errno), "check the disk that holds COPPICE_HOME");
                return;
        }
        uint64_t left = (uint64_t)st.f_bavail * st.f_frsize;
        snprintf(detail, sizeof(detail), "%s free in %s", cop_format_size(left, size), r->engine->home);
        add(r, "disk", left >= SPACE_NEEDED, true, detail,
            "free at least 2 GiB, or point COPPICE_HOME to a larger disk");
        add(r, "inodes", st.f_files == 0 || st.f_favail > 100000, true,
            st.f_files == 0 || st.f_favail > 100000 ? "enough" : "nearly used up",
            "delete files on the disk that holds COPPICE_HOME");
}

static void check_keeper(struct report *r)
{
        bool ok = access(r->engine->keeper_path, X_OK) == 0;

        add(r, "keeper", ok, true, r->engine->keeper_path, "install coppice-keeper beside coppiced");
}

static bool on_path(const char *program)
{
        const char *path = getenv("PATH");
        char file[4200];

        for (const char *at = path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"; *at;) {
                size_t n = strcspn(at, ":");
                if (cop_path_format(file, sizeof(file), "%.*s/%s", (int)n, at, program) == 0 && access(file, X_OK) == 0)
                        return true;
                at += n + (at[n] == ':');
        }
        return false;
}

static void check_programs(struct report *r)
{
        static const struct {
                const char *check, *program, *remedy;
        } programs[] = {
                {"image.jq", "jq", "apt-get install jq (needed to make images)"},
                {"image.mmdebstrap", "mmdebstrap", "apt-get install mmdebstrap (needed for `coppice image build`)"},
                {"image.zstd", "zstd", "apt-get install zstd (needed to import .tar.zst)"},
                {"image.skopeo", "skopeo", "apt-get install skopeo (needed to import OCI images)"},
                {"image.umoci", "umoci", "apt-get install umoci (needed to import OCI images)"},
                {"network.nft", "nft", "apt-get install nftables (needed for network policies)"},
        };

        add(r, "image.tool", access(r->engine->image_tool, X_OK) == 0, false, r->engine->image_tool,
            "install libexec/coppice-image");
        for (size_t i = 0; i < ELEMENTSOF(programs); i++) {
                bool there = on_path(programs[i].program);
                add(r, programs[i].check, there, false, there ? "found" : "not found", programs[i].remedy);
        }
}

static void check_image(struct report *r)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        char detail[60];
        size_t n = 0;

        if (cop_store_image_list(r->engine->store, &rows, NULL) < 0)
                return; /* a store that cannot be read has said so elsewhere */
        while (rows[n])
                n++;
        snprintf(detail, sizeof(detail), "%zu image%s", n, n == 1 ? "" : "s");
        add(r, "image", n > 0, false, detail, "coppice image build code-interpreter");
}

void cop_engine_doctor(struct cop_engine *e, struct cop_op_to to)
{
        struct report r = {.engine = e, .checks = json_array(), .ok = true};

        check_kernel(&r);
        check_privilege(&r);
        check_namespaces(&r);
        check_overlay(&r);
        check_cgroup(&r);
        check_cgroup_moves(&r);
        check_space(&r);
        check_keeper(&r);
        check_programs(&r);
        check_image(&r);
        cop_answer(to, json_pack("{s:b, s:o}", "ok", r.ok, "checks", r.checks), NULL);
}
