/* System calls that reach the machine, other namespaces or large kernel surfaces. */
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_FLAGS_COUNT (sizeof(ns_flags) / sizeof(ns_flags[0]))

static const unsigned ns_flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                    CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP};

static enum outcome mounts(const char *arg)
{
        enum outcome o = judge("mount tmpfs", mount("none", "/tmp", "tmpfs", 0, NULL));

        o = worst(o, judge("bind mount", mount("/etc", "/tmp", NULL, MS_BIND, NULL)));
        o = worst(o, judge("remount /proc/sys writable", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL)));
        o = worst(o, judge("remount / nosuid", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL)));
        o = worst(o, judge("mount proc", mount("proc", "/tmp", "proc", 0, NULL)));
        o = worst(o, judge("mount cgroup2", mount("cgroup2", "/tmp", "cgroup2", 0, NULL)));
        o = worst(o, judge("mount sysfs", mount("sysfs", "/tmp", "sysfs", 0, NULL)));
        o = worst(o, judge("mount the disk", mount("/dev/vda", "/tmp", "ext4", 0, NULL)));
        o = worst(o, judge("unmask /proc/kcore", umount2("/proc/kcore", MNT_DETACH)));
        o = worst(o, judge("unmask /proc/keys", umount2("/proc/keys", 0)));
        o = worst(o, judge("umount /", umount2("/", MNT_DETACH)));
        return worst(o, judge("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp")));
}

static enum outcome new_mount_api(const char *arg)
{
        char attr[32] = {0};
        enum outcome o = judge("fsopen", syscall(SYS_fsopen, "tmpfs", 0));

        o = worst(o, judge("fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0)));
        o = worst(o, judge("open_tree clone", syscall(SYS_open_tree, AT_FDCWD, "/", 1)));
        o = worst(o, judge("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 0)));
        o = worst(o, judge("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0)));
        return worst(o, judge("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, attr, sizeof(attr))));
}

static enum outcome unshare_namespaces(const char *arg)
{
        enum outcome o = HELD;

        for (size_t i = 0; i < NS_FLAGS_COUNT; i++)
                o = worst(o, judge("unshare", unshare((int)ns_flags[i])));
        o = worst(o, judge("unshare time", unshare(0x80)));
        return worst(o, judge("unshare user, high bits set", syscall(SYS_unshare, 0x100000000UL | CLONE_NEWUSER)));
}

static enum outcome judge_child(const char *what, long pid)
{
        if (pid == 0)
                _exit(0);
        int saved = errno;
        if (pid > 0)
                waitpid((pid_t)pid, NULL, 0);
        errno = saved;
        return judge(what, pid);
}

static enum outcome clone_namespaces(const char *arg)
{
        enum outcome o = HELD;

        for (size_t i = 0; i < NS_FLAGS_COUNT; i++) {
                o = worst(o, judge_child("clone", syscall(SYS_clone, ns_flags[i] | SIGCHLD, 0, 0, 0, 0)));
                o = worst(o, judge_child("clone, high bits set",
                                         syscall(SYS_clone, 0xff00000000UL | ns_flags[i] | SIGCHLD, 0, 0, 0, 0)));
        }
        return o;
}

static enum outcome clone3_namespaces(const char *arg)
{
        struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS, .exit_signal = SIGCHLD};

        return judge_child("clone3", syscall(SYS_clone3, &args, sizeof(args)));
}

static enum outcome enter_namespaces(const char *arg)
{
        static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
        enum outcome o = HELD;
        char path[64];

        for (int who = 0; who < 2; who++)
                for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                        snprintf(path, sizeof(path), "/proc/%s/ns/%s", who ? "1" : "self", names[i]);
                        int fd = open(path, O_RDONLY);
                        o = worst(o, judge(path, fd < 0 ? -1 : setns(fd, 0)));
                        if (fd >= 0)
                                close(fd);
                }
        int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
        return worst(o,
                     judge("setns through a pidfd of init", pidfd < 0 ? -1 : setns(pidfd, CLONE_NEWNS | CLONE_NEWNET)));
}

static enum outcome keyrings(const char *arg)
{
        enum outcome o = judge("add_key", syscall(SYS_add_key, "user", "escape", "x", 1, KEY_SPEC_USER_KEYRING));

        o = worst(o, judge("request_key", syscall(SYS_request_key, "user", "escape", NULL, KEY_SPEC_USER_KEYRING)));
        o = worst(o, judge("keyctl join", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL)));
        return worst(o, judge("keyctl search",
                              syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_SESSION_KEYRING, 1)));
}

static enum outcome bpf(const char *arg)
{
        union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

        return judge("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

static enum outcome io_uring(const char *arg)
{
        char params[256] = {0};

        return judge("io_uring_setup", syscall(SYS_io_uring_setup, 4, params));
}

static enum outcome aio(const char *arg)
{
        aio_context_t context = 0;

        return judge("io_setup", syscall(SYS_io_setup, 4, &context));
}

static enum outcome user_fault_fd(const char *arg)
{
        enum outcome o = judge("userfaultfd", syscall(SYS_userfaultfd, 1 /* user mode only */));

        return worst(o, judge("/dev/userfaultfd", open("/dev/userfaultfd", O_RDWR)));
}

static enum outcome perf_events(const char *arg)
{
        struct perf_event_attr attr = {
                .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_CPU_CLOCK};

        return judge("perf_event_open", syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

static enum outcome modules(const char *arg)
{
        int fd = open("/proc/self/exe", O_RDONLY);
        enum outcome o = judge("init_module", syscall(SYS_init_module, "x", 1, ""));

        o = worst(o, judge("finit_module", syscall(SYS_finit_module, fd, "", 0)));
        return worst(o, judge("delete_module", syscall(SYS_delete_module, "ext4", O_NONBLOCK)));
}

static enum outcome machine(const char *arg)
{
        enum outcome o = judge(
                "reboot", syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_CAD_OFF, 0));

        o = worst(o, judge("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0)));
        o = worst(o, judge("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0)));
        o = worst(o, judge("swapon", swapon("/tmp/none", 0)));
        o = worst(o, judge("swapoff", swapoff("/tmp/none")));
        o = worst(o, judge("acct", acct("/tmp/none")));
        o = worst(o, judge("quotactl", quotactl(QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL)));
        o = worst(o, judge("syslog read", syscall(SYS_syslog, 3, (char[16]){0}, 16)));
        o = worst(o, judge("vhangup", vhangup()));
#ifdef __x86_64__
        o = worst(o, judge("iopl", syscall(SYS_iopl, 3)));
        o = worst(o, judge("ioperm", syscall(SYS_ioperm, 0x70, 2, 1)));
#endif
        return o;
}

static enum outcome names(const char *arg)
{
        enum outcome o = judge("sethostname", sethostname("escaped", 7));

        return worst(o, judge("setdomainname", setdomainname("escaped", 7)));
}

static enum outcome clocks(const char *arg)
{
        struct timespec ts = {.tv_sec = 1};
        struct timeval tv = {.tv_sec = 1};
        struct timex tx = {.modes = ADJ_TICK, .tick = 10000};
        enum outcome o = judge("clock_settime", clock_settime(CLOCK_REALTIME, &ts));

        o = worst(o, judge("settimeofday", settimeofday(&tv, NULL)));
        o = worst(o, judge("adjtimex", adjtimex(&tx)));
        o = worst(o, judge("clock_adjtime", clock_adjtime(CLOCK_REALTIME, &tx)));
        return worst(o, must_not_write("/proc/self/timens_offsets", "1 100 0"));
}

static enum outcome handles(const char *arg)
{
        char buf[sizeof(struct file_handle) + MAX_HANDLE_SZ] = {0};
        struct file_handle *h = (struct file_handle *)buf;
        int mount_id;

        h->handle_bytes = MAX_HANDLE_SZ;
        if (name_to_handle_at(AT_FDCWD, "/workspace", h, &mount_id, 0) < 0) {
                printf("no handle (%s), making one up\n", strerror(errno));
                h->handle_bytes = 8; /* inode 2, generation 0: the root folder of ext4 */
                h->handle_type = 1;
                memcpy(h->f_handle, "\2\0\0\0\0\0\0\0", 8);
        }
        int fd = open("/run/coppice", O_RDONLY | O_DIRECTORY);
        return judge("open_by_handle_at", open_by_handle_at(fd, h, O_RDONLY));
}

static enum outcome personalities(const char *arg)
{
        enum outcome o = judge("READ_IMPLIES_EXEC", personality(READ_IMPLIES_EXEC));

        o = worst(o, judge("MMAP_PAGE_ZERO", personality(MMAP_PAGE_ZERO)));
        return worst(o, judge("PER_BSD", personality(PER_BSD)));
}

static enum outcome old_and_odd(const char *arg)
{
        enum outcome o = judge("kcmp", syscall(SYS_kcmp, 1, getpid(), 0, 0, 0));

        o = worst(o, judge("memfd_secret", syscall(SYS_memfd_secret, 0)));
        o = worst(o, judge("fanotify_init", syscall(SYS_fanotify_init, 0, 0)));
        o = worst(o, judge("move_pages of init", syscall(SYS_move_pages, 1, 0, NULL, NULL, NULL, 0)));
        o = worst(o, judge("process_madvise", syscall(SYS_process_madvise, -1, NULL, 0, 0, 0)));
        o = worst(o, judge("system call 9999", syscall(9999)));
        return worst(o, judge("system call 600", syscall(600)));
}

/* A filter that looks at one architecture only is passed by the others. */
static enum outcome other_abi(const char *arg)
{
#ifdef __x86_64__
        enum outcome o = judge("x32 unshare", syscall(0x40000000 | SYS_unshare, CLONE_NEWUSER));
        pid_t pid = fork();

        if (pid == 0) {
                long r;
                __asm__ volatile("int $0x80" : "=a"(r) : "a"(310L /* unshare */), "b"((long)CLONE_NEWUSER) : "memory");
                _exit(r >= 0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
                printf("unshare by int 0x80 WORKED\n");
                return ESCAPED;
        }
        printf("int 0x80: %s\n", WIFSIGNALED(status) ? "no such gate" : "refused");
        return o;
#else
        return ABSENT;
#endif
}

static enum outcome entropy(const char *arg)
{
        int fd = open("/dev/urandom", O_RDWR), bits = 8;
        enum outcome o = judge("RNDADDTOENTCNT", ioctl(fd, RNDADDTOENTCNT, &bits));

        return worst(o, judge("RNDCLEARPOOL", ioctl(fd, RNDCLEARPOOL, 0)));
}

static enum outcome priorities(const char *arg)
{
        struct sched_param rt = {.sched_priority = 50};
        struct rlimit files;
        enum outcome o = judge("SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &rt));

        o = worst(o, judge("nice -20", setpriority(PRIO_PROCESS, 0, -20)));
        o = worst(o, judge("real-time io priority", syscall(SYS_ioprio_set, 1, 0, 1 << 13)));
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_max += 100000;
        o = worst(o, judge("raising the hard limit of files", setrlimit(RLIMIT_NOFILE, &files)));
        return worst(o, must_not_write("/proc/self/oom_score_adj", "-1000"));
}

/* A core limit other than 1 would start the host's core_pattern handler, as root of the host. */
static enum outcome core_handler(const char *arg)
{
        struct rlimit none = {0, 0}, now;

        setrlimit(RLIMIT_CORE, &none);
        syscall(SYS_setrlimit, RLIMIT_CORE, &none);
        getrlimit(RLIMIT_CORE, &now);
        printf("core limit is %ld, %ld\n", (long)now.rlim_cur, (long)now.rlim_max);
        return now.rlim_cur == 1 && now.rlim_max == 1 ? HELD : ESCAPED;
}

const struct attempt kernel_attempts[] = {
        {"mounts", mounts},
        {"new_mount_api", new_mount_api},
        {"unshare_namespaces", unshare_namespaces},
        {"clone_namespaces", clone_namespaces},
        {"clone3_namespaces", clone3_namespaces},
        {"enter_namespaces", enter_namespaces},
        {"keyrings", keyrings},
        {"bpf", bpf},
        {"io_uring", io_uring},
        {"aio", aio},
        {"user_fault_fd", user_fault_fd},
        {"perf_events", perf_events},
        {"modules", modules},
        {"machine", machine},
        {"names", names},
        {"clocks", clocks},
        {"handles", handles},
        {"personalities", personalities},
        {"old_and_odd", old_and_odd},
        {"other_abi", other_abi},
        {"entropy", entropy},
        {"priorities", priorities},
        {"core_handler", core_handler},
        {0},
};
