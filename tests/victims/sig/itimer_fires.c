/* An alarm that is due soon after the thaw comes, and an interval timer goes on ticking. */
#include <sys/time.h>

#include "../victim.h"

static volatile int ticks;

static void on(int sig)
{
        ticks++;
}

int main(void)
{
        struct itimerval it = {.it_value = {0, 300000}, .it_interval = {0, 50000}};

        signal(SIGALRM, on);
        CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
        victim_ready();
        victim_wait();
        int before = ticks;
        for (int i = 0; i < 4000 && ticks < before + 3; i++)
                usleep(1000);
        CHECK(ticks >= before + 3);
        victim_pass();
}
