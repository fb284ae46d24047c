/* A descriptor whose signals go to one thread that is not the first (F_OWNER_TID).
 * victim: refuse=told of what comes */
#include <fcntl.h>
#include <pthread.h>

#include "../victim.h"

static volatile int tid;
static void *wait_here(void *unused)
{
        tid = gettid();
        for (;;)
                pause();
        return unused;
}

int main(void)
{
        int p[2];
        pthread_t t;

        CHECK(pipe(p) == 0 && pthread_create(&t, NULL, wait_here, NULL) == 0);
        while (!tid)
                usleep(1000);
        struct f_owner_ex owner = {F_OWNER_TID, tid}, now;
        CHECK(fcntl(p[0], F_SETOWN_EX, &owner) == 0);
        victim_ready();
        victim_wait();
        CHECK(fcntl(p[0], F_GETOWN_EX, &now) == 0 && now.type == F_OWNER_TID && now.pid == tid);
        victim_pass();
}
