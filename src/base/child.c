/* Theory of operation
 *
 * The child shares our memory until it executes the program, as with posix_spawn(3): a daemon of some size would pay milliseconds for
 * page tables that are thrown away at once.  So the child has a stack of its own, we stand still meanwhile (CLONE_VFORK), no signal
 * reaches a handler of ours in it (all are blocked until its handlers are reset, which are its own), and it writes to
 * nothing but its stack.  Its functions are not instrumented by AddressSanitizer: they never return, so what they had
 * poisoned would stay so.
 */
#include "child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"

#define MAX_FDS 16
#define PARKING 64 /* sources are first copied above every target, so that no target overwrites a source */
#define STACK_SIZE (32 * 1024)
#define _in_child_ __attribute__((no_sanitize_address))

struct report {
        int errnum; /* 0 in the first report of a detached start, which only carries the pid */
        pid_t pid;
};

_in_child_ void cop_signals_reset(void)
{
        /* As rt_sigaction(2) takes it: libc refuses the two signals that it keeps for itself, but a parent may have left them
         * ignored all the same, and exec keeps that. */
        static const struct {
                void *handler;
                unsigned long flags;
                void *restorer;
                uint64_t mask;
        } by_default = {0};
        sigset_t none;

        for (int sig = 1; sig <= 64; sig++)
                syscall(SYS_rt_sigaction, sig, &by_default, NULL, sizeof(by_default.mask));
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Everything is close-on-exec first; dup2 then makes the wanted ones survive. */
_in_child_ static int place_fds(const struct cop_child_spec *spec, int *report_fd)
{
        int parked[MAX_FDS];
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null_fd < 0)
                return -errno;
        null_fd = fcntl(null_fd, F_DUPFD_CLOEXEC, PARKING);
        *report_fd = fcntl(*report_fd, F_DUPFD_CLOEXEC, PARKING);
        if (null_fd < 0 || *report_fd < 0 || close_range(0, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                return -errno;
        for (size_t i = 0; i < spec->fd_count; i++) {
                parked[i] = fcntl(spec->fds[i].source, F_DUPFD_CLOEXEC, PARKING);
                if (parked[i] < 0)
                        return -errno;
        }
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
                if (dup2(null_fd, fd) < 0)
                        return -errno;
        for (size_t i = 0; i < spec->fd_count; i++)
                if (dup2(parked[i], spec->fds[i].target) < 0)
                        return -errno;
        return 0;
}

struct child {
        const struct cop_child_spec *spec;
        pid_t parent;
        int report_fd;
};

/* Returns in the parent, when the child has executed its program or ended. */
_in_child_ static pid_t clone_shared(int (*run)(void *), struct child *c, char *stack_end, int flags)
{
        return clone(run, stack_end, CLONE_VM | CLONE_VFORK | SIGCHLD | flags, c);
}

_in_child_ static int run_child(void *userdata)
{
        const struct child *c = userdata;
        const struct cop_child_spec *spec = c->spec;
        int r = 0, report_fd = c->report_fd;

        cop_signals_reset();
        if (spec->new_session)
                setsid();
        if (spec->death_signal && !spec->detached) {
                if (prctl(PR_SET_PDEATHSIG, spec->death_signal) < 0)
                        r = -errno;
                else if (getppid() != c->parent) /* it died before the prctl */
                        _exit(127);
        }
        if (r == 0)
                r = place_fds(spec, &report_fd);
        if (r == 0 && spec->cwd && chdir(spec->cwd) < 0)
                r = -errno;
        if (r == 0) {
                execve(spec->path, (char *const *)spec->argv, spec->env ? (char *const *)spec->env : environ);
                r = -errno;
        }
        struct report report = {.errnum = -r, .pid = getpid()};
        _exit(write(report_fd, &report, sizeof(report)) == sizeof(report) ? 127 : 126);
}

/* The middle process of a double fork: starts the program, reports its pid, ends. */
_in_child_ static int run_middle(void *userdata)
{
        struct child *c = userdata;
        _Alignas(16) char stack[STACK_SIZE];
        pid_t pid = clone_shared(run_child, c, stack + sizeof(stack), 0);
        struct report report = {.errnum = pid < 0 ? errno : 0, .pid = pid};

        _exit(write(c->report_fd, &report, sizeof(report)) == sizeof(report) ? 0 : 1);
}

/* Reads reports until exec closed the pipe: 0 when no failure was told. */
static int read_reports(int fd, pid_t *pid)
{
        struct report report;
        int errnum = 0;

        for (;;) {
                ssize_t n = read(fd, &report, sizeof(report));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n != sizeof(report))
                        return n < 0 ? errno : errnum;
                if (report.errnum)
                        errnum = report.errnum;
                else
                        *pid = report.pid;
        }
}

int cop_child_spawn(const struct cop_child_spec *spec, pid_t *ret_pid, struct cop_error *err)
{
        _cleanup_close_ int read_fd = -EBADF, write_fd = -EBADF;
        int fds[2];

        if (spec->fd_count > MAX_FDS)
                return cop_error_set(err, EINVAL, COP_ERR_internal, "too many descriptors for %s", spec->path);
        for (size_t i = 0; i < spec->fd_count; i++)
                if (spec->fds[i].target < 0 || spec->fds[i].target >= PARKING)
                        return cop_error_set(err, EINVAL, COP_ERR_internal, "descriptor %d for %s: not within 0 … %d",
                                             spec->fds[i].target, spec->path, PARKING - 1);
        if (pipe2(fds, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "pipe");
        read_fd = fds[0];
        write_fd = fds[1];

        struct child child = {.spec = spec, .parent = getpid(), .report_fd = write_fd};
        _Alignas(16) char stack[2 * STACK_SIZE]; /* the middle process has the next one in its own */
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        /* The middle process opens and closes nothing: closing a copy of a thousand descriptors would take half a millisecond. */
        pid_t pid = clone_shared(spec->detached ? run_middle : run_child, &child, stack + sizeof(stack),
                                 spec->detached ? CLONE_FILES : 0);
        int failed = errno;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (pid < 0)
                return cop_error_errno(err, failed, "starting %s", spec->path);
        write_fd = cop_close(write_fd);
        pid_t program = pid;
        int errnum = read_reports(read_fd, &program);
        if (spec->detached || errnum)
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        if (errnum)
                return cop_error_errno(err, errnum, "starting %s", spec->path);
        if (ret_pid)
                *ret_pid = program;
        return 0;
}

int cop_child_spawn_output(const struct cop_child_spec *spec, pid_t *ret_pid, int *ret_fd, struct cop_error *err)
{
        _cleanup_close_ int read_fd = -EBADF, write_fd = -EBADF;
        struct cop_child_spec piped = *spec;
        struct cop_child_fd all[MAX_FDS];
        int fds[2];

        if (spec->fd_count >= MAX_FDS)
                return cop_error_set(err, EINVAL, COP_ERR_internal, "too many descriptors for %s", spec->path);
        for (size_t i = 0; i < spec->fd_count; i++) {
                if (spec->fds[i].target == STDOUT_FILENO)
                        return cop_error_set(err, EINVAL, COP_ERR_internal, "two outputs for %s", spec->path);
                all[i] = spec->fds[i];
        }
        if (pipe2(fds, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "pipe");
        read_fd = fds[0];
        write_fd = fds[1];
        all[piped.fd_count++] = (struct cop_child_fd){write_fd, STDOUT_FILENO};
        piped.fds = all;
        int r = cop_child_spawn(&piped, ret_pid, err);
        if (r == 0)
                *ret_fd = TAKE_FD(read_fd);
        return r;
}
