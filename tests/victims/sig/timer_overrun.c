/* A POSIX timer whose signal is pending counts its overruns over the thaw; an absolute one comes at its time. */
#include "../victim.h"

int main(void)
{
        timer_t t, a;
        struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct itimerspec its = {.it_value = {0, 5000000}, .it_interval = {0, 5000000}}, abs = {0};
        sigset_t set;
        siginfo_t info;
        struct timespec wait = {5, 0};

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
        ev.sigev_signo = SIGUSR2;
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &a) == 0);
        CHECK(timer_settime(t, 0, &its, NULL) == 0);
        clock_gettime(CLOCK_MONOTONIC, &abs.it_value);
        abs.it_value.tv_sec += 1;
        CHECK(timer_settime(a, TIMER_ABSTIME, &abs, NULL) == 0);
        usleep(100000);
        victim_ready();
        victim_wait();
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK(sigtimedwait(&set, &info, &wait) == SIGUSR1 && info.si_code == SI_TIMER);
        CHECK(info.si_overrun >= 10 && timer_getoverrun(t) >= 10);
        CHECK(sigtimedwait(&set, &info, &wait) == SIGUSR1);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        CHECK(sigtimedwait(&set, &info, &wait) == SIGUSR2 && info.si_code == SI_TIMER);
        clock_gettime(CLOCK_MONOTONIC, &wait);
        CHECK(wait.tv_sec > abs.it_value.tv_sec ||
              (wait.tv_sec == abs.it_value.tv_sec && wait.tv_nsec >= abs.it_value.tv_nsec));
        victim_pass();
}
