/* Alternate signal stacks: one set, one in use at the freeze (the handler waits on it), one disabled. */
#include <pthread.h>
#include <sys/mman.h>

#include "../victim.h"

static char *stack;
static volatile int inside, bad;

static void on(int sig)
{
        char here;
        stack_t now;

        if (&here < stack || &here >= stack + 65536)
                bad = 1;
        inside = 1;
        victim_wait(); /* frozen here */
        if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_ONSTACK) || now.ss_sp != stack || now.ss_size != 65536)
                bad = 2;
}

static void *run(void *arg)
{
        stack_t st = {.ss_sp = stack, .ss_size = 65536}, now;

        sigaltstack(&st, NULL);
        pthread_kill(pthread_self(), SIGUSR1);
        if (sigaltstack(NULL, &now) != 0 || now.ss_flags != 0 || now.ss_sp != stack)
                bad = 3;
        return arg;
}

int main(void)
{
        static char mine[32768];
        stack_t st = {.ss_sp = mine, .ss_size = sizeof(mine), .ss_flags = (int)(1U << 31)}, now;
        struct sigaction sa = {.sa_handler = on, .sa_flags = SA_ONSTACK};
        pthread_t t;

        stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
        CHECK(sigaltstack(&st, NULL) == 0); /* with SS_AUTODISARM */
        CHECK(pthread_create(&t, NULL, run, NULL) == 0);
        while (!inside)
                usleep(1000);
        victim_ready();
        victim_wait();
        pthread_join(t, NULL);
        if (bad)
                victim_fail("check %d", bad);
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == mine && now.ss_size == sizeof(mine) &&
              now.ss_flags == (int)(1U << 31));
        victim_pass();
}
