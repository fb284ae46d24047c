/* Process and thread CPU clocks only grow after the thaw, and getrusage works. */
#include <sys/resource.h>
#include <sys/times.h>

#include "../victim.h"

static double now(clockid_t id)
{
        struct timespec ts;
        clock_gettime(id, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(void)
{
        struct rusage u;
        struct tms t;

        victim_ready();
        victim_wait();
        double p = now(CLOCK_PROCESS_CPUTIME_ID), th = now(CLOCK_THREAD_CPUTIME_ID);
        for (volatile int i = 0; i < 20000000; i++)
                ;
        CHECK(now(CLOCK_PROCESS_CPUTIME_ID) > p && now(CLOCK_THREAD_CPUTIME_ID) > th);
        CHECK(getrusage(RUSAGE_SELF, &u) == 0 && times(&t) != (clock_t)-1);
        victim_pass();
}
