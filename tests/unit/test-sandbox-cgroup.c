/* The files of cgroup v1 and v2 on plain folders (this machine may have only one of them), then the real thing. */
#include "lib/test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "sandbox/cgroup.h"

static void put(int dir_fd, const char *name, const char *text)
{
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        ASSERT_GE(fd, 0);
        ASSERT_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        close(fd);
}

static const char *get(int dir_fd, const char *name)
{
        static char buf[256];
        _cleanup_free_ char *text = NULL;
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_read_word(dir_fd, name, &text, &err), &err);
        snprintf(buf, sizeof(buf), "%s", text);
        return buf;
}

static void make_host(struct cop_cgroup_host *host, bool v2)
{
        static const char *const names[] = {"memory", "cpu", "cpuacct", "pids", "freezer", "unified"};

        *host = (struct cop_cgroup_host){.v2 = v2};
        for (size_t i = v2 ? COP_CG_UNIFIED : 0; i < COP_CG_MAX; i++)
                ASSERT_GT(asprintf(&host->base[i], "%s/%s/coppice", test_dir(), names[i]), 0);
}

TEST(version_2_files)
{
        const struct cop_limits limits = {.memory_max = 1 << 20, .cpu_milli = 1500, .pids_max = 7};
        const struct cop_limits none = {0}, keep = {COP_LIMIT_KEEP, COP_LIMIT_KEEP, COP_LIMIT_KEEP};
        struct cop_cgroup_host host;
        struct cop_cgroup cg = COP_CGROUP_NULL;
        struct cop_cgroup_stats stats;
        struct cop_error err = COP_ERROR_NULL;

        make_host(&host, true);
        ASSERT_OK(cop_cgroup_create(&host, "sb_one", &cg, &err), &err);
        int fd = cg.fd[COP_CG_UNIFIED];
        static const char *const files[] = {"memory.max", "memory.swap.max", "cpu.max",
                                            "pids.max",   "cgroup.procs",    "cgroup.freeze"};
        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                put(fd, files[i], "");
        ASSERT_EQ(unlinkat(fd, "memory.max", 0), 0);
        ASSERT_CODE(cop_cgroup_limits(&cg, &limits, &err), &err, COP_ERR_unsupported);
        ASSERT_OK(cop_cgroup_limits(&cg, &none, &err), &err);
        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                put(fd, files[i], "");
        ASSERT_OK(cop_cgroup_limits(&cg, &limits, &err), &err);
        ASSERT_STR(get(fd, "memory.max"), "1048576");
        ASSERT_STR(get(fd, "memory.swap.max"), "0");
        ASSERT_STR(get(fd, "cpu.max"), "150000 100000");
        ASSERT_STR(get(fd, "pids.max"), "7");
        for (size_t i = 0; i < 4; i++)
                put(fd, files[i], "");
        ASSERT_OK(cop_cgroup_limits(&cg, &keep, &err), &err);
        ASSERT_STR(get(fd, "memory.max"), "");
        ASSERT_OK(cop_cgroup_limits(&cg, &none, &err), &err);
        ASSERT_STR(get(fd, "memory.max"), "max");
        ASSERT_STR(get(fd, "cpu.max"), "max");
        ASSERT_STR(get(fd, "pids.max"), "max");
        ASSERT_OK(cop_cgroup_freeze(&cg, true, &err), &err);
        ASSERT_STR(get(fd, "cgroup.freeze"), "1");
        ASSERT_OK(cop_cgroup_add(&cg, 4242, false, &err), &err);
        ASSERT_STR(get(fd, "cgroup.procs"), "4242");

        put(fd, "memory.current", "5000\n");
        put(fd, "memory.stat", "anon 1\nfile 2\ninactive_file 2000\n");
        put(fd, "memory.peak", "9000\n");
        put(fd, "memory.max", "max\n");
        put(fd, "memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n");
        put(fd, "cpu.stat", "usage_usec 77\nuser_usec 1\n");
        put(fd, "pids.current", "3\n");
        ASSERT_OK(cop_cgroup_stats(&cg, &stats, &err), &err);
        ASSERT_EQ(stats.memory, 3000);
        ASSERT_EQ(stats.memory_peak, 9000);
        ASSERT_EQ(stats.memory_max, 0);
        ASSERT_EQ(stats.oom_kills, 1);
        ASSERT_EQ(stats.cpu_usec, 77);
        ASSERT_EQ(stats.pids, 3);
        cop_cgroup_done(&cg);
        cop_cgroup_host_done(&host);
}

TEST(version_1_files)
{
        const struct cop_limits limits = {.memory_max = 1 << 20, .cpu_milli = 1, .pids_max = 7};
        struct cop_cgroup_host host;
        struct cop_cgroup cg = COP_CGROUP_NULL;
        struct cop_cgroup_stats stats;
        struct cop_error err = COP_ERROR_NULL;

        make_host(&host, false);
        ASSERT_OK(cop_cgroup_create(&host, "sb_one", &cg, &err), &err);
        put(cg.fd[COP_CG_MEMORY], "memory.limit_in_bytes", "");
        put(cg.fd[COP_CG_MEMORY], "memory.memsw.limit_in_bytes", "");
        put(cg.fd[COP_CG_CPU], "cpu.cfs_quota_us", "");
        put(cg.fd[COP_CG_PIDS], "pids.max", "");
        ASSERT_OK(cop_cgroup_limits(&cg, &limits, &err), &err);
        ASSERT_STR(get(cg.fd[COP_CG_MEMORY], "memory.limit_in_bytes"), "1048576");
        ASSERT_STR(get(cg.fd[COP_CG_MEMORY], "memory.memsw.limit_in_bytes"), "1048576");
        ASSERT_STR(get(cg.fd[COP_CG_CPU], "cpu.cfs_quota_us"), "1000"); /* the kernel takes no less */
        put(cg.fd[COP_CG_MEMORY], "memory.usage_in_bytes", "5000\n");
        put(cg.fd[COP_CG_MEMORY], "memory.stat", "cache 1\ntotal_inactive_file 6000\n");
        put(cg.fd[COP_CG_MEMORY], "memory.max_usage_in_bytes", "9000\n");
        put(cg.fd[COP_CG_MEMORY], "memory.limit_in_bytes", "9223372036854771712\n");
        put(cg.fd[COP_CG_MEMORY], "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
        put(cg.fd[COP_CG_CPUACCT], "cpuacct.usage", "77000\n");
        put(cg.fd[COP_CG_PIDS], "pids.current", "3\n");
        ASSERT_OK(cop_cgroup_stats(&cg, &stats, &err), &err);
        ASSERT_EQ(stats.memory, 0); /* the two files are read one after the other: never below zero */
        ASSERT_EQ(stats.memory_max, 0);
        ASSERT_EQ(stats.oom_kills, 4);
        ASSERT_EQ(stats.cpu_usec, 77);
        cop_cgroup_done(&cg);
        cop_cgroup_host_done(&host);
}

TEST(names_that_lead_elsewhere)
{
        static const char *const names[] = {
                "",    "..",   ".",
                "a/b", "../x", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
        struct cop_cgroup_host host;
        struct cop_cgroup cg = COP_CGROUP_NULL;
        struct cop_error err = COP_ERROR_NULL;

        make_host(&host, true);
        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                ASSERT_CODE(cop_cgroup_create(&host, names[i], &cg, &err), &err, COP_ERR_bad_request);
                ASSERT_LT(cop_cgroup_cleanup(names[i], 0, &err), 0);
        }
        cop_cgroup_host_done(&host);
}

/* cpu and cpuacct are one folder on most v1 hosts. */
TEST(controllers_that_share_a_folder)
{
        struct cop_cgroup_host host;
        struct cop_cgroup cg = COP_CGROUP_NULL;
        struct cop_error err = COP_ERROR_NULL;

        make_host(&host, false);
        free(host.base[COP_CG_CPUACCT]);
        host.base[COP_CG_CPUACCT] = strdup(host.base[COP_CG_CPU]);
        cop_freep(&host.base[COP_CG_FREEZER]);
        cop_freep(&host.base[COP_CG_UNIFIED]);
        ASSERT_OK(cop_cgroup_create(&host, "sb_one", &cg, &err), &err);
        ASSERT_EQ(cg.fd[COP_CG_UNIFIED], -EBADF);
        ASSERT_CODE(cop_cgroup_freeze(&cg, true, &err), &err, COP_ERR_unsupported);
        ASSERT_OK(cop_cgroup_remove(&cg), NULL);
        ASSERT_EQ(access(host.base[COP_CG_CPU], F_OK), 0);
        cop_cgroup_done(&cg);
        cop_cgroup_host_done(&host);
}

TEST(a_host_without_cgroups_is_told_what_to_do)
{
        struct cop_cgroup_host host = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                SKIP("needs root");
        while (umount2("/sys/fs/cgroup", MNT_DETACH) == 0)
                ;
        ASSERT_CODE(cop_cgroup_detect(&host, &err), &err, COP_ERR_unsupported);
        ASSERT_CONTAINS(err.message, "mount cgroup2");
        ASSERT_CODE(cop_cgroup_cleanup("sb_x", 0, &err), &err, COP_ERR_unsupported);
}

static pid_t sleeper(struct cop_cgroup *cg)
{
        struct cop_error err = COP_ERROR_NULL;
        pid_t pid = fork();

        if (pid == 0) {
                pause();
                _exit(0);
        }
        ASSERT_OK(cop_cgroup_add(cg, pid, false, &err), &err);
        return pid;
}

TEST(a_real_cgroup)
{
        const struct cop_limits limits = {.memory_max = 64 << 20, .cpu_milli = 500, .pids_max = 10};
        struct cop_cgroup_host host = {0};
        struct cop_cgroup cg = COP_CGROUP_NULL, again = COP_CGROUP_NULL;
        struct cop_cgroup_stats stats;
        struct cop_error err = COP_ERROR_NULL;
        char name[32];

        if (geteuid() != 0 || cop_cgroup_detect(&host, &err) < 0)
                SKIP("needs root and cgroups: %s", err.message);
        snprintf(name, sizeof(name), "test-%d", (int)getpid());
        ASSERT_OK(cop_cgroup_create(&host, name, &cg, &err), &err);
        ASSERT_OK(cop_cgroup_limits(&cg, &limits, &err), &err);
        pid_t pid = sleeper(&cg);
        ASSERT_OK(cop_cgroup_stats(&cg, &stats, &err), &err);
        ASSERT_EQ(stats.memory_max, 64 << 20);
        ASSERT_EQ(stats.pids, 1);
        ASSERT_EQ(cop_cgroup_signal(&cg, 0, 0), 1);
        ASSERT_EQ(cop_cgroup_signal(&cg, SIGKILL, pid), 0);
        if (cg.fd[COP_CG_UNIFIED] >= 0) {
                ASSERT_OK(cop_cgroup_freeze(&cg, true, &err), &err);
                _cleanup_free_ char *events = NULL;
                for (int i = 0; i < 500 && (!events || !strstr(events, "frozen 1")); i++) {
                        usleep(2000);
                        cop_freep(&events);
                        ASSERT_OK(cop_read_word(cg.fd[COP_CG_UNIFIED], "cgroup.events", &events, &err), &err);
                }
                ASSERT_CONTAINS(events, "frozen 1");
                ASSERT_OK(cop_cgroup_freeze(&cg, false, &err), &err);
        }
        ASSERT_ERRNO(cop_cgroup_remove(&cg), EBUSY);
        cop_cgroup_kill(&cg);
        ASSERT_EQ(waitpid(pid, NULL, 0), pid);
        ASSERT_OK(cop_cgroup_remove(&cg), NULL);
        ASSERT_OK(cop_cgroup_remove(&cg), NULL); /* twice is fine */
        cop_cgroup_done(&cg);

        /* A stale one with a process in it gives way to the next of its name. */
        ASSERT_OK(cop_cgroup_create(&host, name, &cg, &err), &err);
        pid = sleeper(&cg);
        signal(SIGCHLD, SIG_IGN); /* reaped at once, as by the host's init */
        ASSERT_OK(cop_cgroup_create(&host, name, &again, &err), &err);
        ASSERT_EQ(cop_cgroup_signal(&again, 0, 0), 0);
        ASSERT_OK(cop_cgroup_cleanup(name, 100, &err), &err);
        ASSERT_OK(cop_cgroup_cleanup(name, 100, &err), &err);
        cop_cgroup_done(&cg);
        cop_cgroup_done(&again);
        cop_cgroup_host_done(&host);
}
