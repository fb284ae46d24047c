/* POSIX timers of all clocks: TAI, real time at an absolute time, CPU time of the process and of another thread, with and without
 * signals, with gaps in their ids; their overruns and their signals' values. */
#include <pthread.h>

#include "../victim.h"

#define LONG 100

static volatile int ready, burn = 1;
static clockid_t thread_clock;

static void *burner(void *unused)
{
        pthread_getcpuclockid(pthread_self(), &thread_clock);
        ready = 1;
        while (burn)
                ;
        return unused;
}

static timer_t arm(clockid_t clock, int notify, int flags, time_t seconds)
{
        struct sigevent ev = {
                .sigev_notify = notify, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = (int)seconds};
        struct itimerspec at = {.it_value = {seconds, 1}, .it_interval = {17, 3}};
        timer_t gap, t;

        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &gap) == 0 && timer_create(clock, &ev, &t) == 0 &&
              timer_delete(gap) == 0);
        if (flags) {
                struct timespec now;
                CHECK(clock_gettime(clock, &now) == 0);
                at.it_value.tv_sec += now.tv_sec;
        }
        CHECK(timer_settime(t, flags, &at, NULL) == 0);
        return t;
}

static void check_left(timer_t t, double least)
{
        struct itimerspec now;

        CHECK(timer_gettime(t, &now) == 0);
        double left = (double)now.it_value.tv_sec + (double)now.it_value.tv_nsec / 1e9;
        if (left < least || left > LONG + 1)
                victim_fail("timer %ld has %.3f s left", (long)(intptr_t)t, left);
        CHECK(now.it_interval.tv_sec == 17 && now.it_interval.tv_nsec == 3);
}

int main(void)
{
        static const clockid_t walls[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI};
        struct timespec zero = {0};
        timer_t relative[4], absolute[4], process, thread;
        pthread_t burning;
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        CHECK(pthread_create(&burning, NULL, burner, NULL) == 0);
        while (!ready)
                usleep(1000);
        for (int i = 0; i < 4; i++) {
                relative[i] = arm(walls[i], i % 2 ? SIGEV_NONE : SIGEV_SIGNAL, 0, LONG);
                absolute[i] = arm(walls[i], SIGEV_SIGNAL, TIMER_ABSTIME, LONG);
        }
        process = arm(CLOCK_PROCESS_CPUTIME_ID, SIGEV_NONE, 0, LONG);
        thread = arm(thread_clock, SIGEV_SIGNAL, 0, LONG);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 4; i++) {
                check_left(relative[i], LONG - 40);
                check_left(absolute[i], LONG - 40);
        }
        check_left(process, LONG - 40);
        check_left(thread, LONG - 40);
        CHECK(sigtimedwait(&set, &info, &zero) == -1);
        struct itimerspec soon = {.it_value = {0, 20000000}};
        CHECK(timer_settime(thread, 0, &soon, NULL) == 0);
        struct timespec limit = {5, 0};
        CHECK(sigtimedwait(&set, &info, &limit) == SIGRTMIN + 1 && info.si_code == SI_TIMER &&
              info.si_value.sival_int == LONG);
        burn = 0;
        CHECK(pthread_join(burning, NULL) == 0);
        victim_pass();
}
