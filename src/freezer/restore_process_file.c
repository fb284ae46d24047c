/* Descriptors that stand for a process: see dump_process_file.c. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "freezer/restore.h"
#include "freezer/tracee.h"

static int open_pidfd(const struct img_file *f, pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, (int)f->flags & (O_NONBLOCK | COP_PIDFD_THREAD));
}

/* "/proc/17/task/17/stat", as it is called of another process. */
static void path_of(pid_t pid, const char *path, char *ret, size_t size)
{
        const char *rest = strchr(path + strlen("/proc/"), '/'), *task = "/task/";
        const char *after = rest && strncmp(rest, task, strlen(task)) == 0 ? rest + strlen(task) : NULL;

        if (after)
                snprintf(ret, size, "/proc/%d%s%d%s", pid, task, pid, after + strspn(after, "0123456789"));
        else
                snprintf(ret, size, "/proc/%d%s", pid, rest ? rest : "");
}

void cop_restore_end(int status)
{
        if (WIFSIGNALED(status)) {
                int sig = WTERMSIG(status);
                struct rlimit none = {0, 0};
                sigset_t set;
                setrlimit(RLIMIT_CORE, &none);
                signal(sig, SIG_DFL);
                raise(sig);
                sigemptyset(&set);
                sigaddset(&set, sig);
                sigprocmask(SIG_UNBLOCK, &set, NULL);
        }
        _exit(WEXITSTATUS(status));
}

/* A process that end_it() ends with that status. */
static pid_t start_ended(const struct cop_restore *r, int status)
{
        pid_t pid = cop_restore_fork_helper(r);
        sigset_t set;
        int sig;

        if (pid != 0)
                return pid;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigwait(&set, &sig);
        cop_restore_end(status);
}

static void end_it(pid_t pid)
{
        int saved = errno;

        kill(pid, SIGTERM);
        waitpid(pid, NULL, __WALL);
        errno = saved;
}

int cop_restore_process_file(const struct cop_restore *r, const struct img_file *f, int flags)
{
        char path[4352];

        if (f->kind == IMG_FILE_PIDFD)
                return open_pidfd(f, (pid_t)f->arg[0]);
        if (!f->arg[0])
                return open(cop_restore_string(r, &f->path), flags);
        pid_t pid = start_ended(r, 0);
        if (pid < 0)
                return -1;
        path_of(pid, cop_restore_string(r, &f->path), path, sizeof(path));
        int fd = open(path, flags);
        end_it(pid);
        return fd;
}

static bool is_of_ended(const struct img_file *f)
{
        return f->kind == IMG_FILE_PIDFD && f->arg[0] == 0;
}

int cop_restore_pidfds_of_ended(struct cop_restore *r, struct cop_error *err)
{
        int fd = 0;

        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *first = RESTORE_FILE(r, i);
                if (!is_of_ended(first) || r->objects[i] >= 0)
                        continue;
                pid_t pid = start_ended(r, (int)first->arg[1]);
                for (uint32_t k = i; k < r->image->count[IMG_FILES] && pid > 0 && fd >= 0; k++) {
                        const struct img_file *f = RESTORE_FILE(r, k);
                        if (!is_of_ended(f) || f->dev != first->dev || f->ino != first->ino)
                                continue;
                        fd = open_pidfd(f, pid);
                        if (fd >= 0 && fd < r->base_fd)
                                fd = cop_restore_move_high(r, fd);
                        r->objects[k] = fd;
                }
                if (pid > 0)
                        end_it(pid);
                if (pid < 0 || fd < 0)
                        return cop_error_errno(err, errno, "opening a pidfd");
        }
        return 0;
}
