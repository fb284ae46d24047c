/* An interval timer whose signal is blocked and pending: it stands still until the signal is taken, and ticks from then on. */
#include <sys/time.h>

#include "../victim.h"

static volatile int ticks;

static void on(int sig)
{
        ticks++;
}

int main(void)
{
        struct itimerval it = {.it_value = {0, 10000}, .it_interval = {0, 20000}}, now;
        sigset_t set;

        signal(SIGALRM, on);
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && setitimer(ITIMER_REAL, &it, NULL) == 0);
        usleep(60000);
        victim_ready();
        victim_wait();
        usleep(60000);
        CHECK(sigpending(&set) == 0 && sigismember(&set, SIGALRM) == 1 && ticks == 0);
        CHECK(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == 20000);
        CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0 && ticks == 1); /* however often it would have come */
        for (int i = 0; i < 4000 && ticks < 4; i++)
                usleep(1000);
        CHECK(ticks >= 4);
        victim_pass();
}
