/* Threads that call the vdso's clock without pause while the freeze comes: time never goes back, all calls work. */
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/time.h>

#include "../victim.h"

static volatile int stop;
static const char *bad;

static void *run(void *arg)
{
        struct timespec a, b;

        clock_gettime(CLOCK_MONOTONIC, &a);
        while (!stop) {
                clock_gettime(CLOCK_MONOTONIC, &b);
                if (b.tv_sec < a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec < a.tv_nsec))
                        bad = "time went back";
                if (b.tv_sec > a.tv_sec + 20)
                        bad = "time jumped";
                a = b;
                sched_getcpu();
        }
        return arg;
}

int main(void)
{
        pthread_t t[2];
        unsigned long base = getauxval(AT_SYSINFO_EHDR);

        for (int i = 0; i < 2; i++)
                CHECK(pthread_create(&t[i], NULL, run, NULL) == 0);
        victim_ready();
        victim_wait();
        CHECK(getauxval(AT_SYSINFO_EHDR) == base && memcmp((void *)base, "\177ELF", 4) == 0);
        usleep(20000);
        stop = 1;
        for (int i = 0; i < 2; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
