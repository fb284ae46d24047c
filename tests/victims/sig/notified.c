/* Signals that wait with what the kernel says of them: of a POSIX message queue (SI_MESGQ), of a thread (SI_TKILL), of a process that has
 * ended; SIGCONT that waits blocked in a process that goes on, and one that is stopped with others pending.
 * victim: libs=-lrt */
#include <fcntl.h>
#include <mqueue.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static siginfo_t take(int sig)
{
        struct timespec zero = {0};
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, sig);
        if (syscall(SYS_rt_sigtimedwait, &set, &info, &zero, 8) != sig) /* the library makes SI_USER of SI_TKILL */
                victim_fail("signal %d does not wait", sig);
        return info;
}

static pid_t start_waiting(void)
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        victim_wait();
        siginfo_t cont = take(SIGCONT), usr = take(SIGUSR2);
        _exit(cont.si_pid == getppid() && usr.si_pid == getppid() ? 0 : 1);
}

static char state(pid_t pid)
{
        char path[64], line[256] = {0};

        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && read(fd, line, sizeof(line) - 1) > 0 && close(fd) == 0);
        return strrchr(line, ')')[2];
}

int main(void)
{
        struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 64};
        struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = 99};
        sigset_t all;
        int status;

        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        mqd_t mq = mq_open("/victim-notified", O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
        if (mq >= 0) { /* and is gone before the freeze: a queue is not what is tried here */
                CHECK(mq_notify(mq, &ev) == 0 && mq_send(mq, "hello", 5, 1) == 0);
                CHECK(mq_close(mq) == 0 && mq_unlink("/victim-notified") == 0);
        }
        CHECK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1) == 0);
        pid_t going = start_waiting(), stopped = start_waiting();
        CHECK(kill(going, SIGUSR2) == 0 && kill(going, SIGSTOP) == 0 && waitpid(going, &status, WUNTRACED) == going);
        CHECK(kill(going, SIGCONT) == 0 && waitpid(going, &status, WCONTINUED) == going);
        CHECK(kill(stopped, SIGUSR2) == 0 && kill(stopped, SIGSTOP) == 0 &&
              waitpid(stopped, &status, WUNTRACED) == stopped);
        victim_ready();
        victim_wait();
        if (mq >= 0) {
                siginfo_t info = take(SIGRTMIN + 2);
                CHECK(info.si_code == SI_MESGQ && info.si_value.sival_int == 99 && info.si_pid == getpid());
        }
        siginfo_t info = take(SIGUSR1);
        CHECK(info.si_code == SI_TKILL && info.si_pid == getpid());
        CHECK(waitpid(going, &status, 0) == going && status == 0);
        CHECK(state(stopped) == 'T' && kill(stopped, SIGCONT) == 0);
        CHECK(waitpid(stopped, &status, 0) == stopped && status == 0);
        victim_pass();
}
