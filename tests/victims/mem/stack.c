/* The main stack: deep contents before, growth by megabytes after the thaw, and a thread's stack with its guard. */
#include <pthread.h>
#include <setjmp.h>

#include "../mem.h"

static __attribute__((noinline)) unsigned long deep(int n)
{
        volatile unsigned long here[512];

        for (int i = 0; i < 512; i++)
                here[i] = (unsigned long)n * 31 + (unsigned long)i;
        unsigned long r = n > 0 ? deep(n - 1) : 0;
        for (int i = 0; i < 512; i++)
                if (here[i] != (unsigned long)n * 31 + (unsigned long)i)
                        victim_fail("a stack frame at depth %d changed", n);
        return r + here[17];
}

static __attribute__((noinline)) void freeze_at(int n)
{
        volatile unsigned long here[512];

        for (int i = 0; i < 512; i++)
                here[i] = (unsigned long)n + (unsigned long)i;
        if (n > 0)
                freeze_at(n - 1);
        else {
                victim_ready();
                victim_wait();
                deep(1000); /* 4 MiB more */
        }
        for (int i = 0; i < 512; i++)
                CHECK(here[i] == (unsigned long)n + (unsigned long)i);
}

static sigjmp_buf out;
static void on(int sig)
{
        siglongjmp(out, 1);
}

static void *run(void *arg)
{
        victim_wait();
        deep(20);
        return arg;
}

int main(void)
{
        pthread_t t;
        pthread_attr_t a;
        char *lowest;
        size_t size;
        struct sigaction sa = {.sa_handler = on};

        CHECK(pthread_create(&t, NULL, run, NULL) == 0);
        freeze_at(200);
        pthread_getattr_np(t, &a);
        pthread_attr_getstack(&a, (void **)&lowest, &size);
        CHECK(pthread_join(t, NULL) == 0);
        sigaction(SIGSEGV, &sa, NULL);
        static char *own;
        own = ANON(3 * PAGE, RW);
        CHECK(mprotect(own, PAGE, PROT_NONE) == 0);
        if (sigsetjmp(out, 1) == 0) {
                own[0] = 1;
                victim_fail("a guard page was written");
        }
        victim_pass();
}
