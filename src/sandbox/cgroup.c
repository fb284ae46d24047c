/* Theory of operation
 *
 * A host has one of three shapes: cgroup v2 alone, v1 hierarchies alone, or both ("hybrid") with the controllers on v1.
 * cop_cgroup_detect reads /proc/self/mountinfo and notes for each controller the folder of its hierarchy; on v2 all of
 * them name the same folder.  A cgroup is then one descriptor per distinct hierarchy (v2: only COP_CG_UNIFIED), and
 * `fd_of` finds the one that holds a controller's files.
 *
 * Moving a process between cgroups waits for an RCU grace period (7-11 ms), being born there does not: so on v2 the first
 * process is cloned into the cgroup, on v1 the move runs beside the child's mount work and only its end is waited for.  A thaw
 * moves twice more.  Any hierarchy mounted with favordynmods (Linux 6.0, admin-guide/cgroup-v2.rst) does away with the wait on
 * the whole host, 0.1 ms then, for a little at each fork and exit; Android's kernels have it on.  The daemon holds one that
 * has no controllers.
 */
#include "cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mountinfo.h"
#include "base/parse.h"
#include "sandbox/procfs.h"
#include "sandbox/sysmount.h"

#define MOUNTINFO_MAX (4u << 20)
#define STAT_MAX 65536
#define CPU_PERIOD 100000 /* µs; the kernel's default */

static const char *const controller_names[COP_CG_MAX] = {"memory", "cpu", "cpuacct", "pids", "freezer", ""};

/* -- quick moves ------------------------------------------------------------------------------------------------- */

int cop_cgroup_favor_moves(void)
{
        const char *kept = getenv("COPPICE_SLOW_CGROUPS");
        _cleanup_close_ int fs_fd = kept && *kept ? -ENOTSUP : sys_fsopen("cgroup", FSOPEN_CLOEXEC);

        if (fs_fd < 0)
                return kept && *kept ? -ENOTSUP : -errno;
        if (sys_fsconfig(fs_fd, FSCONFIG_SET_FLAG, "none", NULL, 0) < 0 ||
            sys_fsconfig(fs_fd, FSCONFIG_SET_STRING, "name", "coppice", 0) < 0 ||
            sys_fsconfig(fs_fd, FSCONFIG_SET_FLAG, "favordynmods", NULL, 0) < 0 ||
            sys_fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        int fd = sys_fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
        return fd < 0 ? -errno : fd;
}

/* -- detection --------------------------------------------------------------------------------------------------- */

void cop_cgroup_host_done(struct cop_cgroup_host *host)
{
        for (size_t i = 0; i < COP_CG_MAX; i++)
                cop_freep(&host->base[i]);
}

static const char *base_name(void)
{
        const char *wanted = getenv("COPPICE_CGROUP");

        return wanted && wanted[0] == '/' && !strstr(wanted, "/..") ? wanted : "/coppice";
}

static int note_mount(struct cop_cgroup_host *host, const struct cop_mountinfo *m)
{
        bool unified = strcmp(m->fs_type, "cgroup2") == 0;

        if (!unified && strcmp(m->fs_type, "cgroup") != 0)
                return 0;
        for (size_t i = 0; i < COP_CG_MAX; i++) {
                bool here = unified ? i == COP_CG_UNIFIED
                                    : i != COP_CG_UNIFIED && cop_list_has(m->super_options, controller_names[i]);
                if (!here || host->base[i])
                        continue;
                if (asprintf(&host->base[i], "%s%s", m->mount_point, base_name()) < 0) {
                        host->base[i] = NULL;
                        return -ENOMEM;
                }
        }
        return 0;
}

/* True when the v2 hierarchy mounted above base has the three controllers to give. */
static bool unified_has_controllers(const char *base)
{
        _cleanup_free_ char *path = NULL, *text = NULL;

        if (!base || asprintf(&path, "%.*s/cgroup.controllers", (int)(strlen(base) - strlen(base_name())), base) < 0 ||
            cop_read_word(AT_FDCWD, path, &text, NULL) < 0)
                return false;
        for (char *p = text; *p; p++)
                if (*p == ' ')
                        *p = ',';
        return cop_list_has(text, "memory") && cop_list_has(text, "cpu") && cop_list_has(text, "pids");
}

int cop_cgroup_detect(struct cop_cgroup_host *ret, struct cop_error *err)
{
        _cleanup_(cop_mounts_done) struct cop_mounts mounts = {0};
        struct cop_cgroup_host host = {0};
        int r = cop_mounts_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &mounts, err);

        if (r < 0)
                return cop_error_wrap(err, r, "looking for cgroups");
        for (size_t i = 0; i < mounts.count; i++)
                if (note_mount(&host, &mounts.list[i]) < 0) {
                        cop_cgroup_host_done(&host);
                        return cop_error_errno(err, ENOMEM, "looking for cgroups");
                }
        host.v2 = unified_has_controllers(host.base[COP_CG_UNIFIED]);
        for (size_t i = 0; host.v2 && i < COP_CG_UNIFIED; i++)
                cop_freep(&host.base[i]);
        if (!host.v2 && (!host.base[COP_CG_MEMORY] || !host.base[COP_CG_CPU] || !host.base[COP_CG_PIDS])) {
                cop_cgroup_host_done(&host);
                return cop_error_set(
                        err, ENODEV, COP_ERR_unsupported,
                        "no cgroup hierarchy offers memory, cpu and pids; mount cgroup2 on /sys/fs/cgroup "
                        "(in a container: run it with its own cgroup namespace and delegated controllers)");
        }
        *ret = host;
        return 0;
}

/* -- making and removing ----------------------------------------------------------------------------------------- */

static int fd_of(const struct cop_cgroup *cg, enum cop_controller c)
{
        return cg->v2 ? cg->fd[COP_CG_UNIFIED] : cg->fd[c];
}

void cop_cgroup_done(struct cop_cgroup *cg)
{
        for (size_t i = 0; i < COP_CG_MAX; i++) {
                cg->fd[i] = cop_close(cg->fd[i]);
                cg->base_fd[i] = cop_close(cg->base_fd[i]);
        }
}

static bool name_is_safe(const char *name)
{
        size_t n = strlen(name);

        return n > 0 && n < sizeof(((struct cop_cgroup *)0)->name) && !strchr(name, '/') && name[0] != '.';
}

/* Gives the controllers on to the children of the folder `path`; errors come out when a limit file is missing. */
static void enable_controllers(int base_fd, const char *path)
{
        static const char *const words[] = {"+memory", "+cpu", "+pids"};
        _cleanup_close_ int fd = openat(base_fd, path, O_WRONLY | O_CLOEXEC);

        for (size_t i = 0; fd >= 0 && i < ELEMENTSOF(words); i++)
                if (write(fd, words[i], strlen(words[i])) < 0)
                        continue;
}

static int open_base(struct cop_cgroup *cg, enum cop_controller c, const char *path, struct cop_error *err)
{
        int r = cop_mkdir_p(path, 0755, err);

        if (r < 0)
                return r;
        cg->base_fd[c] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (cg->base_fd[c] < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (cg->v2) {
                enable_controllers(cg->base_fd[c], "../cgroup.subtree_control");
                enable_controllers(cg->base_fd[c], "cgroup.subtree_control");
        } else if (c == COP_CG_MEMORY) {
                /* Before 5.11 a v1 child does not count towards its parent unless told so; later it always does. */
                cop_write_kernel_file(cg->base_fd[c], "memory.use_hierarchy", "1", NULL);
        }
        return 0;
}

static int open_own(struct cop_cgroup *cg, enum cop_controller c, struct cop_error *err)
{
        /* Co-mounted v1 controllers (cpu,cpuacct) meet the same folder twice. */
        if (mkdirat(cg->base_fd[c], cg->name, 0755) < 0 && errno != EEXIST)
                return cop_error_errno(err, errno, "creating the %s cgroup %s", controller_names[c], cg->name);
        cg->fd[c] = openat(cg->base_fd[c], cg->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (cg->fd[c] < 0)
                return cop_error_errno(err, errno, "opening the %s cgroup %s", controller_names[c], cg->name);
        return 0;
}

int cop_cgroup_create(const struct cop_cgroup_host *host, const char *name, struct cop_cgroup *ret,
                      struct cop_error *err)
{
        struct cop_cgroup cg = COP_CGROUP_NULL;
        int r = 0;

        if (!name_is_safe(name))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "\"%.64s\" cannot name a cgroup", name);
        cg.v2 = host->v2;
        memcpy(cg.name, name, strlen(name) + 1);
        bool stale = false;
        for (enum cop_controller c = 0; c < COP_CG_MAX && r == 0; c++) {
                if (!host->base[c])
                        continue;
                r = open_base(&cg, c, host->base[c], err);
                stale = stale || (r == 0 && faccessat(cg.base_fd[c], name, F_OK, 0) == 0);
        }
        if (r == 0 && stale)
                r = cop_cgroup_cleanup(name, 2000, err);
        for (enum cop_controller c = 0; c < COP_CG_MAX && r == 0; c++)
                if (cg.base_fd[c] >= 0)
                        r = open_own(&cg, c, err);
        if (r < 0) {
                cop_cgroup_remove(&cg);
                cop_cgroup_done(&cg);
                return r;
        }
        *ret = cg;
        return 0;
}

int cop_cgroup_remove(struct cop_cgroup *cg)
{
        int r = 0;

        for (enum cop_controller c = 0; c < COP_CG_MAX; c++)
                if (cg->base_fd[c] >= 0 && unlinkat(cg->base_fd[c], cg->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                        r = -errno;
        return r;
}

static void sleep_msec(unsigned msec)
{
        nanosleep(&(struct timespec){.tv_nsec = (long)msec * 1000000}, NULL);
}

int cop_cgroup_cleanup(const char *name, unsigned max_wait_msec, struct cop_error *err)
{
        struct cop_cgroup_host host = {0};
        struct cop_cgroup cg = COP_CGROUP_NULL;
        usec_t deadline = cop_now(CLOCK_MONOTONIC) + max_wait_msec * USEC_PER_MSEC;
        int r = name_is_safe(name) ? cop_cgroup_detect(&host, err) : -EINVAL;

        if (r < 0)
                return r;
        cg.v2 = host.v2;
        memcpy(cg.name, name, strlen(name) + 1);
        for (enum cop_controller c = 0; c < COP_CG_MAX; c++) {
                if (!host.base[c])
                        continue;
                cg.base_fd[c] = open(host.base[c], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (cg.base_fd[c] >= 0)
                        cg.fd[c] = openat(cg.base_fd[c], name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        while ((r = cop_cgroup_remove(&cg)) < 0 && cop_now(CLOCK_MONOTONIC) < deadline) {
                cop_cgroup_kill(&cg);
                sleep_msec(2);
        }
        cop_cgroup_done(&cg);
        cop_cgroup_host_done(&host);
        return r < 0 ? cop_error_errno(err, r, "removing the cgroup %s (a process in it does not end)", name) : 0;
}

/* -- limits and numbers ------------------------------------------------------------------------------------------ */

static int write_number(int fd, const char *file, uint64_t value, struct cop_error *err)
{
        char text[32];

        snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        return cop_write_kernel_file(fd, file, text, err);
}

/* "No limit" for a controller that is not there is no error. */
static int write_unlimited(int fd, const char *file, const char *text, struct cop_error *err)
{
        int r = cop_write_kernel_file(fd, file, text, err);

        return r == -ENOENT ? 0 : r;
}

static int limit_memory(struct cop_cgroup *cg, uint64_t max, struct cop_error *err)
{
        int fd = fd_of(cg, COP_CG_MEMORY);

        if (cg->v2) {
                cop_write_kernel_file(fd, "memory.swap.max", max ? "0" : "max",
                                      NULL); /* absent without swap accounting */
                return max ? write_number(fd, "memory.max", max, err) : write_unlimited(fd, "memory.max", "max", err);
        }
        /* memsw (memory + swap) may never be below the memory limit: raise it first, set it exactly after. */
        cop_write_kernel_file(fd, "memory.memsw.limit_in_bytes", "-1", NULL);
        if (max == 0)
                return write_unlimited(fd, "memory.limit_in_bytes", "-1", err);
        int r = write_number(fd, "memory.limit_in_bytes", max, err);
        if (r == 0)
                write_number(fd, "memory.memsw.limit_in_bytes", max, NULL);
        return r;
}

static int limit_cpu(struct cop_cgroup *cg, uint64_t milli, struct cop_error *err)
{
        int fd = fd_of(cg, COP_CG_CPU);
        uint64_t quota = milli * CPU_PERIOD / 1000;
        char text[48];

        if (milli == 0)
                return write_unlimited(fd, cg->v2 ? "cpu.max" : "cpu.cfs_quota_us", cg->v2 ? "max" : "-1", err);
        if (quota < 1000)
                quota = 1000; /* the kernel's minimum */
        if (!cg->v2)
                return write_number(fd, "cpu.cfs_quota_us", quota, err);
        snprintf(text, sizeof(text), "%llu %d", (unsigned long long)quota, CPU_PERIOD);
        return cop_write_kernel_file(fd, "cpu.max", text, err);
}

static int limit_pids(struct cop_cgroup *cg, uint64_t max, struct cop_error *err)
{
        int fd = fd_of(cg, COP_CG_PIDS);

        return max ? write_number(fd, "pids.max", max, err) : write_unlimited(fd, "pids.max", "max", err);
}

/* The kernel gives a v2 group's controllers to its children only while no process is in the group itself. */
static int explain_missing(struct cop_cgroup *cg, int r, struct cop_error *err)
{
        if (r != -ENOENT || !cg->v2)
                return cop_error_wrap(err, r, "limits of cgroup %s", cg->name);
        return cop_error_set(err, ENODEV, COP_ERR_unsupported,
                             "the cgroup above %s does not give the controllers of its limits to sandboxes; move the "
                             "processes in it (coppiced itself?) into a group of their own, or set COPPICE_CGROUP",
                             cg->name);
}

int cop_cgroup_limits(struct cop_cgroup *cg, const struct cop_limits *limits, struct cop_error *err)
{
        int r = 0;

        if (limits->memory_max != COP_LIMIT_KEEP)
                r = limit_memory(cg, limits->memory_max, err);
        if (r == 0 && limits->cpu_milli != COP_LIMIT_KEEP)
                r = limit_cpu(cg, limits->cpu_milli, err);
        if (r == 0 && limits->pids_max != COP_LIMIT_KEEP)
                r = limit_pids(cg, limits->pids_max, err);
        return r < 0 ? explain_missing(cg, r, err) : 0;
}

int cop_cgroup_add(struct cop_cgroup *cg, pid_t pid, bool skip_unified, struct cop_error *err)
{
        for (enum cop_controller c = 0; c < COP_CG_MAX; c++) {
                if (cg->fd[c] < 0 || (skip_unified && c == COP_CG_UNIFIED))
                        continue;
                int r = write_number(cg->fd[c], "cgroup.procs", (uint64_t)pid, err);
                if (r < 0)
                        return cop_error_wrap(err, r, "moving a process into the %s cgroup %s", controller_names[c],
                                              cg->name);
        }
        return 0;
}

/* cgroup.procs of our own group: up from the folder of all sandboxes to the mount, down to us. */
static int open_own_procs(struct cop_cgroup *cg, enum cop_controller c, const char *cgroups)
{
        const char *base = getenv("COPPICE_CGROUP");
        _cleanup_free_ char *own = NULL;
        _cleanup_buf_ struct cop_buf path = COP_BUF(8192);

        int r = cop_proc_cgroup_path(cgroups, controller_names[c], &own);
        if (r < 0)
                return r;
        for (const char *p = base && *base == '/' ? base : "/coppice"; *p; p++)
                if (*p == '/' && p[1] && p[1] != '/')
                        cop_buf_adds(&path, "../");
        if (cop_buf_addf(&path, ".%s/cgroup.procs", own) < 0)
                return -ENAMETOOLONG;
        int fd = openat(cg->base_fd[c], path.data, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int cop_cgroup_enter(struct cop_cgroup *cg, struct cop_cgroup_visit *ret, struct cop_error *err)
{
        _cleanup_free_ char *cgroups = NULL;
        int r = 0;

        for (enum cop_controller c = 0; c < COP_CG_MAX; c++)
                ret->fd[c] = -EBADF;
        r = cop_read_file(AT_FDCWD, "/proc/self/cgroup", 65536, &cgroups, NULL, err);
        for (enum cop_controller c = 0; c < COP_CG_MAX && r == 0; c++) {
                if (cg->fd[c] < 0)
                        continue;
                ret->fd[c] = open_own_procs(cg, c, cgroups);
                if (ret->fd[c] < 0)
                        r = cop_error_errno(err, ret->fd[c], "finding the keeper's own %s cgroup", controller_names[c]);
                else
                        r = cop_write_kernel_file(cg->fd[c], "cgroup.procs", "0", err);
        }
        if (r < 0)
                cop_cgroup_leave(ret);
        return r;
}

void cop_cgroup_leave(struct cop_cgroup_visit *visit)
{
        for (enum cop_controller c = 0; c < COP_CG_MAX; c++) {
                if (visit->fd[c] >= 0)
                        (void)!write(visit->fd[c], "0", 1);
                visit->fd[c] = cop_close(visit->fd[c]);
        }
}

static uint64_t read_number(int fd, const char *file)
{
        _cleanup_free_ char *text = NULL;
        uint64_t value = 0;

        if (cop_read_word(fd, file, &text, NULL) < 0 || cop_limit_u64(text, &value) < 0)
                return 0;
        return value;
}

static uint64_t read_keyed(int fd, const char *file, const char *key)
{
        _cleanup_free_ char *text = NULL;
        uint64_t value = 0;

        if (cop_read_file(fd, file, STAT_MAX, &text, NULL, NULL) < 0 || cop_keyed_u64(text, key, &value) < 0)
                return 0;
        return value;
}

int cop_cgroup_stats(struct cop_cgroup *cg, struct cop_cgroup_stats *ret, struct cop_error *err)
{
        int memory = fd_of(cg, COP_CG_MEMORY), cpu = cg->v2 ? cg->fd[COP_CG_UNIFIED] : cg->fd[COP_CG_CPUACCT];
        struct cop_cgroup_stats s = {0};

        if (memory < 0)
                return cop_error_set(err, ENODEV, COP_ERR_internal, "cgroup %s is gone", cg->name);
        uint64_t used = read_number(memory, cg->v2 ? "memory.current" : "memory.usage_in_bytes");
        uint64_t cache = read_keyed(memory, "memory.stat", cg->v2 ? "inactive_file" : "total_inactive_file");
        s.memory = used > cache ? used - cache : 0;
        s.memory_peak = read_number(memory, cg->v2 ? "memory.peak" : "memory.max_usage_in_bytes");
        s.memory_max = read_number(memory, cg->v2 ? "memory.max" : "memory.limit_in_bytes");
        if (s.memory_max >= (UINT64_MAX >> 1) - 65536) /* v1 says LONG_MAX cut to a page for "none" */
                s.memory_max = 0;
        s.oom_kills = read_keyed(memory, cg->v2 ? "memory.events" : "memory.oom_control", "oom_kill");
        if (cpu >= 0)
                s.cpu_usec =
                        cg->v2 ? read_keyed(cpu, "cpu.stat", "usage_usec") : read_number(cpu, "cpuacct.usage") / 1000;
        s.pids = read_number(fd_of(cg, COP_CG_PIDS), "pids.current");
        *ret = s;
        return 0;
}

/* -- processes --------------------------------------------------------------------------------------------------- */

int cop_cgroup_signal(struct cop_cgroup *cg, int signo, pid_t except)
{
        int fd = fd_of(cg, COP_CG_PIDS), count = 0;
        _cleanup_free_ char *text = NULL;

        if (fd < 0 || cop_read_file(fd, "cgroup.procs", 4u << 20, &text, NULL, NULL) < 0)
                return 0;
        for (char *line = text, *save = NULL; (line = strtok_r(line, "\n", &save)); line = NULL) {
                uint64_t pid;
                if (cop_parse_u64(line, &pid) < 0 || pid <= 1 || pid > INT32_MAX || (pid_t)pid == except)
                        continue; /* 0: a process outside our pid namespace */
                count++;
                kill((pid_t)pid, signo);
        }
        return count;
}

void cop_cgroup_kill(struct cop_cgroup *cg)
{
        int unified = cg->fd[COP_CG_UNIFIED];

        if (unified < 0 || cop_write_kernel_file(unified, "cgroup.kill", "1", NULL) < 0 || !cg->v2)
                cop_cgroup_signal(cg, SIGKILL, 0);
}

bool cop_cgroup_is_frozen(struct cop_cgroup *cg)
{
        _cleanup_free_ char *text = NULL;

        if (cg->fd[COP_CG_UNIFIED] >= 0)
                return read_keyed(cg->fd[COP_CG_UNIFIED], "cgroup.events", "frozen") == 1;
        return cg->fd[COP_CG_FREEZER] >= 0 &&
               cop_read_word(cg->fd[COP_CG_FREEZER], "freezer.state", &text, NULL) == 0 && strcmp(text, "FROZEN") == 0;
}

int cop_cgroup_freeze(struct cop_cgroup *cg, bool frozen, struct cop_error *err)
{
        if (cg->fd[COP_CG_UNIFIED] >= 0)
                return cop_write_kernel_file(cg->fd[COP_CG_UNIFIED], "cgroup.freeze", frozen ? "1" : "0", err);
        if (cg->fd[COP_CG_FREEZER] >= 0)
                return cop_write_kernel_file(cg->fd[COP_CG_FREEZER], "freezer.state", frozen ? "FROZEN" : "THAWED",
                                             err);
        return cop_error_set(err, ENODEV, COP_ERR_unsupported, "no cgroup freezer for %s; mount cgroup2", cg->name);
}
