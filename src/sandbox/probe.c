/* Theory of operation
 *
 * Reading version numbers and sysctls tells what a host claims; distributions, containers and security modules change the
 * truth.  So a child is started in the namespaces of a sandbox, over two empty layers, and takes the steps of a real start
 * one by one (inside.c); after each it writes a step number, at the first failure its error.  What did not come is what the
 * host lacks; steps after it were not tried and are left out of the list.
 */
#include "probe.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "sandbox/cgroup.h"
#include "sandbox/layers.h"
#include "sandbox/lockdown.h"
#include "sandbox/mounts.h"
#include "sandbox/net.h"
#include "sandbox/userns.h"

#define TRIAL_UID_BASE 1000000000u
#define TRIAL_SECONDS 5

struct list {
        struct cop_probe_result *results;
        size_t count;
};

static void add(struct list *l, const char *name, bool ok, bool needed, const char *remedy, const char *format, ...)
        __attribute__((format(printf, 6, 7)));

static void add(struct list *l, const char *name, bool ok, bool needed, const char *remedy, const char *format, ...)
{
        struct cop_probe_result *r = &l->results[l->count];
        va_list ap;

        if (l->count >= COP_PROBE_MAX)
                return;
        l->count++;
        *r = (struct cop_probe_result){.name = name, .ok = ok, .needed = needed, .remedy = ok ? NULL : remedy};
        va_start(ap, format);
        vsnprintf(r->detail, sizeof(r->detail), format, ap);
        va_end(ap);
}

/* -- what needs no child ----------------------------------------------------------------------------------------- */

static void probe_kernel(struct list *l)
{
        struct utsname u;
        unsigned major = 0, minor = 0;

        uname(&u);
        bool ok = sscanf(u.release, "%u.%u", &major, &minor) == 2 && (major > 5 || (major == 5 && minor >= 19));
        add(l, "kernel", ok, true, "run Linux 5.19 or newer (overlays over id-mapped layers)", "Linux %s on %s",
            u.release, u.machine);
}

static void probe_privilege(struct list *l)
{
        _cleanup_free_ char *text = NULL;
        unsigned long long caps = 0;

        if (cop_read_file(AT_FDCWD, "/proc/self/status", 65536, &text, NULL, NULL) == 0) {
                const char *line = strstr(text, "\nCapEff:");
                if (line)
                        sscanf(line, "\nCapEff: %llx", &caps);
        }
        bool admin = caps & (1ULL << 21);
        add(l, "privilege", geteuid() == 0 && admin, true,
            "run coppiced as root with CAP_SYS_ADMIN (in a container: --privileged, or a virtual machine)",
            "uid %u, %s CAP_SYS_ADMIN", (unsigned)geteuid(), admin ? "with" : "without");
}

static void probe_cgroup(struct list *l)
{
        static const char remedy[] =
                "mount cgroup2 on /sys/fs/cgroup with the memory, cpu and pids controllers, or set "
                "COPPICE_CGROUP to a cgroup that is delegated to coppiced (systemd: Delegate=yes)";
        const struct cop_limits limits = {.memory_max = 64 << 20, .cpu_milli = 500, .pids_max = 10};
        struct cop_cgroup cg = COP_CGROUP_NULL;
        struct cop_cgroup_host host = {0};
        struct cop_error err = COP_ERROR_NULL;
        char name[32];

        snprintf(name, sizeof(name), "probe-%d", (int)getpid());
        int r = cop_cgroup_detect(&host, &err);
        if (r == 0)
                r = cop_cgroup_create(&host, name, &cg, &err);
        if (r == 0)
                r = cop_cgroup_limits(&cg, &limits, &err);
        const char *base = host.base[host.v2 ? COP_CG_UNIFIED : COP_CG_MEMORY];
        add(l, "cgroup", r == 0, true, remedy, "%s", r < 0 ? err.message : host.v2 ? "version 2" : "version 1");
        if (r == 0) {
                struct cop_probe_result *result = &l->results[l->count - 1];
                snprintf(result->detail, sizeof(result->detail), "version %d, below %s", host.v2 ? 2 : 1, base);
                bool freeze = cg.fd[COP_CG_UNIFIED] >= 0 || cg.fd[COP_CG_FREEZER] >= 0;
                add(l, "cgroup_freezer", freeze, false, "mount cgroup2, for suspending sandboxes", "%s",
                    freeze ? "there" : "none");
        }
        cop_cgroup_remove(&cg);
        cop_cgroup_done(&cg);
        cop_cgroup_host_done(&host);
}

static void probe_files(struct list *l)
{
        struct rlimit limit = {0};

        getrlimit(RLIMIT_NOFILE, &limit);
        add(l, "open_files", limit.rlim_max >= 4096, false,
            "raise the hard limit of open files (systemd: LimitNOFILE=65536)", "hard limit %llu",
            (unsigned long long)limit.rlim_max);
}

/* -- the trial --------------------------------------------------------------------------------------------------- */

enum step { STEP_IDS, STEP_NETWORK, STEP_OVERLAY, STEP_MOUNTS, STEP_CAPS, STEP_SECCOMP, STEP_MAX };

static const struct {
        const char *name, *good, *remedy;
} steps[STEP_MAX] = {
        [STEP_IDS] = {"user_namespaces", "a user namespace with 65536 ids",
                      "sysctl -w user.max_user_namespaces=15000; on Debian and Ubuntu also "
                      "kernel.unprivileged_userns_clone=1 and "
                      "kernel.apparmor_restrict_unprivileged_userns=0"},
        [STEP_NETWORK] = {"loopback", "a network namespace with its loopback up", "use a kernel with CONFIG_NET_NS"},
        [STEP_OVERLAY] = {"overlay", "overlayfs over id-mapped layers, inside a user namespace",
                          "use Linux 5.19 or newer with overlayfs; COPPICE_HOME on ext4, xfs or btrfs, not on an "
                          "overlay or NFS"},
        [STEP_MOUNTS] = {"mounts", "proc, devpts and tmpfs inside, host root detached",
                         "run Coppice where /proc is not masked and the root is a real mount (not inside a container)"},
        [STEP_CAPS] = {"capabilities", "the bounding set can be reduced",
                       "do not start coppiced with securebits locked"},
        [STEP_SECCOMP] = {"seccomp", "the system call filter loads", "use a kernel with CONFIG_SECCOMP_FILTER"},
};

struct report {
        enum step step;
        int r;
        char message[300];
};

static int take_step(enum step step, const struct cop_layers *layers, struct cop_error *err)
{
        const struct cop_mount_sources sources = {.ipc_fd = -EBADF, .cpu_fd = -EBADF, .hostname = "probe"};
        int r = 0;

        switch (step) {
        case STEP_IDS:
                return cop_userns_become_root(err);
        case STEP_NETWORK:
                return cop_net_loopback_up(err);
        case STEP_OVERLAY:
                if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        r = cop_error_errno(err, errno, "making the mount tree private");
                return r < 0 ? r : cop_layers_mount(layers, err);
        case STEP_MOUNTS:
                return cop_mounts_setup(&sources, err);
        case STEP_CAPS:
                return cop_lockdown_caps(err);
        case STEP_SECCOMP:
                return cop_lockdown_seccomp(err);
        case STEP_MAX:
                break;
        }
        return -EINVAL;
}

static _Noreturn void trial_child(int sync_fd, const struct cop_layers *layers)
{
        struct cop_error err = COP_ERROR_NULL;
        struct report report = {0};
        char go;

        signal(SIGALRM, SIG_DFL);
        alarm(TRIAL_SECONDS);
        if (recv(sync_fd, &go, 1, 0) != 1)
                _exit(1);
        for (enum step step = 0; step < STEP_MAX && report.r == 0; step++) {
                report.step = step;
                report.r = take_step(step, layers, &err);
                snprintf(report.message, sizeof(report.message), "%.299s", err.message);
                if (send(sync_fd, &report, sizeof(report), MSG_NOSIGNAL) < 0)
                        _exit(1);
        }
        _exit(0);
}

static void read_reports(struct list *l, int sync_fd)
{
        struct report report;

        while (recv(sync_fd, &report, sizeof(report), 0) == sizeof(report) && report.step < STEP_MAX) {
                report.message[sizeof(report.message) - 1] = '\0';
                add(l, steps[report.step].name, report.r == 0, true, steps[report.step].remedy, "%s",
                    report.r == 0 ? steps[report.step].good : report.message);
        }
}

static void run_trial(struct list *l, const char *lower, const char *upper)
{
        struct cop_layers layers = COP_LAYERS_NULL;
        struct cop_error err = COP_ERROR_NULL;
        int fds[2], pidfd = -EBADF;
        const char *paths[] = {lower};

        if (cop_layers_open(paths, 1, upper, &layers, &err) < 0) {
                add(l, "layers", false, true, "see the detail", "%s", err.message);
                return;
        }
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
                cop_layers_done(&layers);
                return;
        }
        pid_t pid = cop_userns_clone(-EBADF, &pidfd, &err);
        if (pid == 0) {
                close(fds[0]);
                trial_child(fds[1], &layers);
        }
        close(fds[1]);
        if (pid < 0)
                add(l, "user_namespaces", false, true, steps[STEP_IDS].remedy, "%s", err.message);
        _cleanup_close_ int userns_fd = pid > 0 ? cop_userns_map(pid, TRIAL_UID_BASE, &err) : -EBADF;
        if (pid > 0 && userns_fd < 0)
                add(l, "user_namespaces", false, true, steps[STEP_IDS].remedy, "%s", err.message);
        if (userns_fd >= 0) {
                int r = cop_layers_idmap(&layers, userns_fd, &err);
                add(l, "idmapped_mounts", r == 0, true,
                    "put COPPICE_HOME on ext4, xfs, btrfs or tmpfs and use Linux 5.19 or newer", "%s",
                    r == 0 ? "the filesystem of COPPICE_HOME can map ids" : err.message);
                if (r == 0 && send(fds[0], "m", 1, MSG_NOSIGNAL) == 1)
                        read_reports(l, fds[0]);
        }
        close(fds[0]);
        if (pid > 0) {
                kill(pid, SIGKILL);
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        cop_close(pidfd);
        cop_layers_done(&layers);
}

static void probe_trial(struct list *l, const char *home)
{
        static const char *const dirs[] = {"", "/low", "/low/dev", "/low/proc", "/low/sys", "/low/run", "/rw"};
        _cleanup_free_ char *dir = NULL;
        char path[2][4200];

        if (asprintf(&dir, "%s/probe-XXXXXX", home ? home : "/tmp") < 0 || !mkdtemp(dir)) {
                add(l, "home", false, true, "choose a writable COPPICE_HOME", "no folder can be made in %s: %s",
                    home ? home : "/tmp", strerror(errno));
                return;
        }
        for (size_t i = 1; i < ELEMENTSOF(dirs); i++)
                if (cop_path_format(path[0], sizeof(path[0]), "%s%s", dir, dirs[i]) == 0 && mkdir(path[0], 0755) == 0)
                        chmod(path[0], 0755);
        cop_path_format(path[0], sizeof(path[0]), "%s/low", dir);
        cop_path_format(path[1], sizeof(path[1]), "%s/rw", dir);
        run_trial(l, path[0], path[1]);
        cop_remove_tree(AT_FDCWD, dir, NULL);
}

size_t cop_probe(const char *home, struct cop_probe_result ret[static COP_PROBE_MAX])
{
        struct list l = {.results = ret};

        probe_kernel(&l);
        probe_privilege(&l);
        probe_cgroup(&l);
        probe_trial(&l, home);
        probe_files(&l);
        return l.count;
}
