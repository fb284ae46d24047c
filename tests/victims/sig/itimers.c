/* setitimer: ITIMER_REAL one-shot and its remaining time; VIRTUAL and PROF with intervals fire on after the thaw. */
#include <sys/time.h>

#include "../victim.h"

static volatile int alrm, vt, prof;

static void on(int sig)
{
        if (sig == SIGALRM)
                alrm++;
        else if (sig == SIGVTALRM)
                vt++;
        else
                prof++;
}

int main(void)
{
        struct itimerval real = {.it_value = {30, 0}, .it_interval = {0, 500000}}, v = {{0, 20000}, {0, 20000}}, now;

        signal(SIGALRM, on);
        signal(SIGVTALRM, on);
        signal(SIGPROF, on);
        CHECK(setitimer(ITIMER_REAL, &real, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &v, NULL) == 0 &&
              setitimer(ITIMER_PROF, &v, NULL) == 0);
        victim_ready();
        victim_wait();
        CHECK(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == 500000 && now.it_interval.tv_sec == 0);
        CHECK(now.it_value.tv_sec >= 10 && now.it_value.tv_sec < 30 && alrm == 0);
        CHECK(getitimer(ITIMER_PROF, &now) == 0 && now.it_interval.tv_usec >= 19000 &&
              now.it_interval.tv_usec <= 25000);
        int v0 = vt, p0 = prof;
        for (volatile long i = 0; i < 2000000000L && (vt < v0 + 3 || prof < p0 + 3); i++)
                ;
        CHECK(vt >= v0 + 3 && prof >= p0 + 3);
        real.it_value = (struct timeval){0, 1000};
        CHECK(setitimer(ITIMER_REAL, &real, &now) == 0 && now.it_value.tv_sec >= 10);
        for (int i = 0; i < 3000 && !alrm; i++)
                usleep(1000);
        CHECK(alrm >= 1);
        victim_pass();
}
