/* A thread whose system calls come back to it as signals (PR_SET_SYSCALL_USER_DISPATCH), as emulators of other systems do it: the
 * engine can make none in its name.
 * victim: refuse=PR_SET_SYSCALL_USER_DISPATCH */
#include <pthread.h>
#include <sys/prctl.h>

#include "../victim.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char selector; /* 0: calls pass */
static volatile int caught, ready, go;
static int possible;

static void on_call(int sig)
{
        selector = 0;
        caught++;
}

static void *dispatched(void *unused)
{
        possible = prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) == 0;
        if (possible)
                selector = 1;
        ready = 1;
        while (!go)
                ;
        getppid();
        return unused;
}

int main(void)
{
        pthread_t t;

        signal(SIGSYS, on_call);
        CHECK(pthread_create(&t, NULL, dispatched, NULL) == 0);
        while (!ready)
                usleep(1000);
        if (!possible)
                victim_skip("no PR_SET_SYSCALL_USER_DISPATCH");
        victim_ready();
        victim_wait();
        CHECK(caught == 0);
        go = 1;
        CHECK(pthread_join(t, NULL) == 0 && caught == 1);
        victim_pass();
}
