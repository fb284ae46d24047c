/* Timers on CPU clocks of the process and of a thread fire after enough work, done before and after the thaw. */
#include <pthread.h>

#include "../victim.h"

static volatile int got[2];

static void on(int sig, siginfo_t *info, void *u)
{
        got[info->si_int]++;
}

int main(void)
{
        timer_t t[2];
        struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART};
        struct itimerspec its = {.it_value = {0, 150000000}};

        sigaction(SIGUSR1, &sa, NULL);
        CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &ev, &t[0]) == 0);
        ev.sigev_value.sival_int = 1;
        CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &ev, &t[1]) == 0);
        CHECK(timer_settime(t[0], 0, &its, NULL) == 0 && timer_settime(t[1], 0, &its, NULL) == 0);
        victim_ready();
        victim_wait();
        for (volatile long i = 0; i < 800000000L && (!got[0] || !got[1]); i++)
                ;
        CHECK(got[0] == 1 && got[1] == 1);
        victim_pass();
}
