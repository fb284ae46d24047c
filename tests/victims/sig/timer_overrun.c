/* POSIX timers whose signal is pending count their overruns over the thaw, and no more than there were; one that is over for good
 * comes once; an absolute one comes at its time. */
#include <sys/syscall.h>

#include "../victim.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define OVER (SIGRTMIN + 1)
#define DIRECTED (SIGRTMIN + 2)

static double seconds(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The signal of a timer of 5 ms that was started then. */
static void take_overruns(int sig, timer_t t, double began)
{
        struct timespec wait = {5, 0};
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, sig);
        CHECK(sigtimedwait(&set, &info, &wait) == sig && info.si_code == SI_TIMER);
        CHECK(info.si_overrun >= 10 && timer_getoverrun(t) >= 10);
        CHECK(info.si_overrun <= (seconds() - began) / 0.005);
        CHECK(sigtimedwait(&set, &info, &wait) == sig);
}

int main(void)
{
        timer_t t, a, once, thread;
        double began = seconds();
        struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct itimerspec its = {.it_value = {0, 5000000}, .it_interval = {0, 5000000}}, abs = {0};
        sigset_t set;
        siginfo_t info;
        struct timespec wait = {5, 0};

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGUSR2);
        sigaddset(&set, OVER);
        sigaddset(&set, DIRECTED);
        sigprocmask(SIG_BLOCK, &set, NULL);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
        ev.sigev_signo = SIGUSR2;
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &a) == 0);
        CHECK(timer_settime(t, 0, &its, NULL) == 0);
        clock_gettime(CLOCK_MONOTONIC, &abs.it_value);
        abs.it_value.tv_sec += 1;
        CHECK(timer_settime(a, TIMER_ABSTIME, &abs, NULL) == 0);
        ev = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = DIRECTED};
        ev.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        CHECK(timer_create(CLOCK_BOOTTIME, &ev, &thread) == 0 && timer_settime(thread, 0, &its, NULL) == 0);
        ev = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = OVER};
        its.it_interval.tv_nsec = 0;
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &once) == 0 && timer_settime(once, 0, &its, NULL) == 0);
        usleep(100000);
        victim_ready();
        victim_wait();
        take_overruns(SIGUSR1, t, began);
        take_overruns(DIRECTED, thread, began);
        sigemptyset(&set);
        sigaddset(&set, OVER);
        CHECK(sigtimedwait(&set, &info, &wait) == OVER && info.si_code == SI_TIMER && info.si_overrun == 0);
        CHECK(sigtimedwait(&set, &info, &(struct timespec){0, 20000000}) < 0);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        CHECK(sigtimedwait(&set, &info, &wait) == SIGUSR2 && info.si_code == SI_TIMER);
        clock_gettime(CLOCK_MONOTONIC, &wait);
        CHECK(wait.tv_sec > abs.it_value.tv_sec ||
              (wait.tv_sec == abs.it_value.tv_sec && wait.tv_nsec >= abs.it_value.tv_nsec));
        victim_pass();
}
