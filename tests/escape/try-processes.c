/* Processes: init, other sandboxes', the host's; identities and capabilities; System V IPC. */
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static enum outcome init_secrets(const char *arg)
{
        static const char *const files[] = {"/proc/1/environ", "/proc/1/mem",     "/proc/1/maps",    "/proc/1/auxv",
                                            "/proc/1/stack",   "/proc/1/syscall", "/proc/1/pagemap", "/proc/1/fd/3"};
        enum outcome o = HELD;

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                o = worst(o, must_not_read(files[i]));
        o = worst(o, judge("/proc/1/fd", open("/proc/1/fd", O_RDONLY | O_DIRECTORY)) == ESCAPED &&
                                     opendir("/proc/1/fd") && readlink("/proc/1/fd/3", (char[64]){0}, 64) > 0
                             ? ESCAPED
                             : HELD);
        return worst(o, judge("/proc/1/mem for writing", open("/proc/1/mem", O_RDWR)));
}

static enum outcome trace(const char *arg)
{
        char byte;
        struct iovec local = {&byte, 1}, remote = {(void *)0x400000, 1};
        pid_t child = fork();

        if (child == 0) {
                pause();
                _exit(0);
        }
        enum outcome o = judge("ptrace init", ptrace(PTRACE_ATTACH, 1, 0, 0));
        o = worst(o, judge("ptrace seize init", ptrace(PTRACE_SEIZE, 1, 0, 0)));
        o = worst(o, judge("ptrace own child", ptrace(PTRACE_ATTACH, child, 0, 0)));
        o = worst(o, judge("process_vm_readv", process_vm_readv(1, &local, 1, &remote, 1, 0)));
        o = worst(o, judge("process_vm_writev", process_vm_writev(1, &local, 1, &remote, 1, 0)));
        int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
        o = worst(o, judge("pidfd_getfd of init's control socket", syscall(SYS_pidfd_getfd, pidfd, 3, 0)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return o;
}

/* Init must live through whatever signal comes from inside. */
static enum outcome kill_init(const char *arg)
{
        static const int signals[] = {SIGKILL, SIGSTOP, SIGTERM, SIGSEGV, SIGHUP, SIGQUIT, SIGABRT, SIGUSR1, SIGPIPE};

        for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
                kill(1, signals[i]);
        usleep(50000);
        FILE *f = fopen("/proc/1/stat", "re");
        char state = '?';
        if (f) {
                if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
                        state = '?';
                fclose(f);
        }
        printf("init is in state %c\n", state);
        return state == 'S' || state == 'R' ? HELD : ESCAPED; /* and had it died, so had we */
}

/* arg: the host's number of a process outside. */
static enum outcome signal_outside(const char *arg)
{
        enum outcome o = judge("signal by the host's number", kill(atoi(arg), 0) == 0 ? 0 : -1);
        char path[64], cmdline[256] = "";

        if (o == ESCAPED) { /* the number may by chance be one of ours */
                snprintf(path, sizeof(path), "/proc/%s/cmdline", arg);
                int fd = open(path, O_RDONLY);
                if (fd >= 0 && read(fd, cmdline, sizeof(cmdline) - 1) >= 0 && !strstr(cmdline, "coppice-escape-victim"))
                        o = HELD;
        }
        return worst(o, judge("pidfd of it", strstr(cmdline, "victim") ? syscall(SYS_pidfd_open, atoi(arg), 0) : -1));
}

/* arg: a word in the command line of a process of another sandbox and of one on the host. */
static enum outcome see_others(const char *arg)
{
        DIR *dir = opendir("/proc");
        struct dirent *entry;
        enum outcome o = HELD;
        int count = 0;
        char path[300], text[4096];

        while (dir && (entry = readdir(dir))) {
                if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid())
                        continue;
                count++;
                snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
                int fd = open(path, O_RDONLY);
                ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
                if (fd >= 0)
                        close(fd);
                if (n > 0 && memmem(text, (size_t)n, arg, strlen(arg)) && !memmem(text, (size_t)n, "see_others", 10)) {
                        printf("process %s is visible\n", entry->d_name);
                        o = ESCAPED;
                }
        }
        if (dir)
                closedir(dir);
        printf("%d processes seen\n", count);
        return count > 20 ? ESCAPED : o;
}

static enum outcome identities(const char *arg)
{
        unsigned base = arg ? (unsigned)strtoul(arg, NULL, 10) : 1000000;
        gid_t group = 65536;
        enum outcome o = judge("setuid 65536", setuid(65536));

        o = worst(o, judge("setuid to the host's number", setuid(base)));
        o = worst(o, judge("setgid 100000", setgid(100000)));
        o = worst(o, judge("setgroups", setgroups(1, &group)));
        o = worst(o, judge("chown to 70000", chown("/tmp", 70000, 70000)));
        o = worst(o, must_not_write("/proc/self/uid_map", "0 0 4294967295"));
        o = worst(o, must_not_write("/proc/self/gid_map", "0 0 4294967295"));
        o = worst(o, must_not_write("/proc/self/setgroups", "allow"));
        if (!am_root())
                o = worst(o, judge("setuid 0 by the user", setuid(0)));
        return o;
}

static enum outcome capabilities(const char *arg)
{
        static const int dangerous[] = {CAP_SYS_ADMIN,
                                        CAP_SYS_PTRACE,
                                        CAP_SYS_MODULE,
                                        CAP_SYS_RAWIO,
                                        CAP_NET_ADMIN,
                                        CAP_NET_RAW,
                                        CAP_SYS_BOOT,
                                        CAP_SYS_TIME,
                                        CAP_MKNOD,
                                        CAP_DAC_READ_SEARCH,
                                        CAP_SYS_RESOURCE,
                                        CAP_SYSLOG,
                                        CAP_BPF,
                                        CAP_PERFMON,
                                        CAP_MAC_ADMIN,
                                        CAP_AUDIT_CONTROL,
                                        CAP_CHECKPOINT_RESTORE,
                                        CAP_LINUX_IMMUTABLE,
                                        CAP_IPC_OWNER,
                                        CAP_SYS_NICE,
                                        CAP_SYS_PACCT,
                                        CAP_SYS_TTY_CONFIG};
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}}, now[2];
        enum outcome o = judge("capset of everything", syscall(SYS_capset, &header, all));

        header.pid = 0;
        syscall(SYS_capget, &header, now);
        for (size_t i = 0; i < sizeof(dangerous) / sizeof(dangerous[0]); i++) {
                int c = dangerous[i];
                if ((now[c / 32].permitted | now[c / 32].effective) & (1u << c % 32) ||
                    prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1) {
                        printf("capability %d is there\n", c);
                        o = ESCAPED;
                }
                o = worst(o, judge("raising it", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0)));
        }
        return o;
}

/* A file with CAP_SYS_ADMIN on it, run. */
static enum outcome file_capabilities(const char *arg)
{
        struct {
                uint32_t magic, permitted, inheritable, permitted2, inheritable2;
        } caps = {0x02000001, 1u << CAP_SYS_ADMIN, 0, 0, 0};
        char path[] = "/tmp/capable";

        unlink(path);
        if (system("cp /bin/true /tmp/capable") != 0)
                return ABSENT;
        enum outcome o = HELD;
        if (setxattr(path, "security.capability", &caps, sizeof(caps), 0) == 0) {
                pid_t pid = fork();
                if (pid == 0) {
                        execl(path, path, NULL);
                        _exit(errno == EPERM ? 99 : 98);
                }
                int status = 0;
                waitpid(pid, &status, 0);
                printf("run with a capability: status %d\n", WEXITSTATUS(status));
                o = WEXITSTATUS(status) == 0 ? ESCAPED : HELD;
        } else {
                printf("setcap: %s\n", strerror(errno));
        }
        unlink(path);
        return o;
}

/* arg: the key of a segment of the host. */
static enum outcome system_v(const char *arg)
{
        enum outcome o = judge("the host's shared memory", shmget((key_t)strtol(arg, NULL, 0), 0, 0));
        struct shmid_ds ds;

        for (int i = 0; i < 64; i++)
                if (shmctl(i, SHM_STAT, &ds) >= 0)
                        o = worst(o, judge("a segment that nobody here made", 0));
        return worst(o, judge("the host's message queue", mq_open("/coppice-escape", O_RDONLY)));
}

static enum outcome environment(const char *arg)
{
        enum outcome o = HELD;

        for (char **e = environ; *e; e++)
                if (strstr(*e, "COPPICE_HOME") || strstr(*e, "COPPICE_TOKEN") || strstr(*e, "SSH_") ||
                    strstr(*e, "ESCAPE_SECRET")) {
                        printf("%s\n", *e);
                        o = ESCAPED;
                }
        return o;
}

const struct attempt process_attempts[] = {
        {"init_secrets", init_secrets},
        {"trace", trace},
        {"kill_init", kill_init},
        {"signal_outside", signal_outside},
        {"see_others", see_others},
        {"identities", identities},
        {"capabilities", capabilities},
        {"file_capabilities", file_capabilities},
        {"system_v", system_v},
        {"environment", environment},
        {0},
};
