/* Loops that compute without a system call, and loops of nothing but system calls: each sum is right after the thaw. */
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

static volatile int go;
static const char *bad;

static void *compute(void *arg)
{
        unsigned long a = 1, b = 1, steps = 0;

        while (!go || steps % 1000) {
                a = a * 6364136223846793005UL + 1442695040888963407UL;
                steps++;
        }
        for (unsigned long i = 0; i < steps; i++)
                b = b * 6364136223846793005UL + 1442695040888963407UL;
        if (a != b)
                bad = "a sum is wrong";
        return arg;
}

static void *call(void *arg)
{
        pid_t pid = getpid();

        while (!go) {
                if ((pid_t)syscall(SYS_getpid) != pid || syscall(SYS_lseek, -1, 0, 0) != -1 || errno != EBADF)
                        bad = "a system call returned something else";
        }
        return arg;
}

int main(void)
{
        pthread_t t[4];

        for (int i = 0; i < 4; i++)
                CHECK(pthread_create(&t[i], NULL, i % 2 ? call : compute, NULL) == 0);
        usleep(20000);
        victim_ready();
        victim_wait();
        go = 1;
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
