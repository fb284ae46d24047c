/* POSIX timers: SIGEV_NONE with remaining time, SIGEV_SIGNAL with value and interval, their ids, clocks, disarmed ones. */
#include "../victim.h"

static volatile int value, code;

static void on(int sig, siginfo_t *info, void *u)
{
        value = info->si_int;
        code = info->si_code;
}

int main(void)
{
        timer_t none, sig, off, gone, boot;
        struct sigevent ev = {.sigev_notify = SIGEV_NONE};
        struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
        struct itimerspec long_one = {.it_value = {100, 0}, .it_interval = {7, 5}}, soon = {.it_value = {0, 200000000}},
                          now;

        CHECK(sigaction(SIGRTMIN + 5, &sa, NULL) == 0);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &gone) == 0);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &none) == 0);
        CHECK(timer_delete(gone) == 0); /* leaves a hole in the ids */
        ev.sigev_notify = SIGEV_SIGNAL;
        ev.sigev_signo = SIGRTMIN + 5;
        ev.sigev_value.sival_int = 4711;
        CHECK(timer_create(CLOCK_REALTIME, &ev, &sig) == 0);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &off) == 0);
        CHECK(timer_create(CLOCK_BOOTTIME, &ev, &boot) == 0);
        CHECK(timer_settime(none, 0, &long_one, NULL) == 0 && timer_settime(boot, 0, &long_one, NULL) == 0);
        CHECK(timer_settime(sig, 0, &soon, NULL) == 0);
        victim_ready();
        victim_wait();
        CHECK(timer_gettime(none, &now) == 0 && now.it_value.tv_sec > 60 && now.it_value.tv_sec < 100);
        CHECK(now.it_interval.tv_sec == 7 && now.it_interval.tv_nsec == 5);
        CHECK(timer_gettime(boot, &now) == 0 && now.it_value.tv_sec > 60 && now.it_value.tv_sec < 100);
        CHECK(timer_gettime(off, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
        for (int i = 0; i < 3000 && !value; i++)
                usleep(1000);
        CHECK(value == 4711 && code == SI_TIMER);
        value = 0;
        soon.it_value.tv_nsec = 1000000;
        CHECK(timer_settime(off, 0, &soon, NULL) == 0);
        for (int i = 0; i < 3000 && !value; i++)
                usleep(1000);
        CHECK(value == 4711);
        CHECK(timer_delete(none) == 0 && timer_delete(sig) == 0 && timer_delete(off) == 0 && timer_delete(boot) == 0);
        victim_pass();
}
