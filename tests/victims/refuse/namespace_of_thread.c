/* A thread that has gone to a host name of its own, as programs do that work in several namespaces.
 * victim: refuse=has a namespace of its own (uts) */
#include <pthread.h>
#include <sched.h>

#include "../victim.h"

static volatile int state; /* 1: there, -1: not possible */
static const char *bad;

static void *elsewhere(void *unused)
{
        char name[64] = {0};

        if (unshare(CLONE_NEWUTS) != 0 || sethostname("elsewhere", 9) != 0) {
                state = -1;
                return unused;
        }
        state = 1;
        victim_wait();
        if (gethostname(name, sizeof(name)) != 0 || strcmp(name, "elsewhere") != 0)
                bad = name[0] ? "the thread has another host name" : "the thread has no host name";
        return unused;
}

int main(void)
{
        char before[64] = {0}, after[64] = {0};
        pthread_t t;

        CHECK(gethostname(before, sizeof(before)) == 0 && pthread_create(&t, NULL, elsewhere, NULL) == 0);
        while (!state)
                usleep(1000);
        if (state < 0)
                victim_skip("no namespaces of host names here");
        victim_ready();
        victim_wait();
        CHECK(pthread_join(t, NULL) == 0 && gethostname(after, sizeof(after)) == 0 && strcmp(before, after) == 0);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
