/* pause, sigsuspend, sigwaitinfo and sigtimedwait, each in a process: ended by a signal after the thaw, or by time. */
#include "../blocked.h"

static volatile int got;

static void on(int sig)
{
        got = sig;
}

static void install(void)
{
        struct sigaction sa = {.sa_handler = on};
        sigaction(SIGUSR1, &sa, NULL);
}

static int by_pause(void)
{
        install();
        return pause() == -1 && errno == EINTR && got == SIGUSR1 ? 3 : 1;
}
static int by_suspend(void)
{
        sigset_t all, some, now;

        install();
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        some = all;
        sigdelset(&some, SIGUSR1);
        if (sigsuspend(&some) != -1 || errno != EINTR || got != SIGUSR1)
                return 1;
        sigprocmask(SIG_BLOCK, NULL, &now);
        return sigismember(&now, SIGUSR1) == 1 ? 3 : 4;
}
static int by_waitinfo(void)
{
        sigset_t set;
        siginfo_t info;

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        return sigwaitinfo(&set, &info) == SIGUSR1 && info.si_pid == getppid() ? 3 : 1;
}
static int by_timedwait(void)
{
        sigset_t set;
        struct timespec ts = {0, 700000000};
        double begin = clock_now(CLOCK_MONOTONIC);

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int r = sigtimedwait(&set, NULL, &ts);
        return r == -1 && errno == EAGAIN && clock_now(CLOCK_MONOTONIC) - begin >= 0.69 ? 3
               : r == -1 && errno == EINTR                                              ? 5
                                                                                        : 1;
}

int main(void)
{
        pid_t p = block_process(SYS_pause, by_pause), s = block_process(SYS_rt_sigsuspend, by_suspend),
              w = block_process(SYS_rt_sigtimedwait, by_waitinfo), t = block_process(SYS_rt_sigtimedwait, by_timedwait);

        victim_ready();
        victim_wait();
        usleep(20000);
        CHECK(waitpid(p, NULL, WNOHANG) == 0 && waitpid(s, NULL, WNOHANG) == 0 && waitpid(w, NULL, WNOHANG) == 0);
        CHECK(kill(p, SIGUSR1) == 0 && kill(s, SIGUSR1) == 0 && kill(w, SIGUSR1) == 0);
        int a = status_of(p), b = status_of(s), c = status_of(w), d = status_of(t);
        if (a != 3 || b != 3 || c != 3 || d != 3)
                victim_fail("pause %d, sigsuspend %d, sigwaitinfo %d, sigtimedwait %d", a, b, c, d);
        victim_pass();
}
