/* Signals pending for single threads (tgkill, pthread_sigqueue) stay theirs and keep their values. */
#include <pthread.h>

#include "../victim.h"

#define N 4
static pthread_t t[N];
static volatile int blocked;
static const char *bad;

static void *run(void *arg)
{
        int i = (int)(long)arg;
        sigset_t set;
        siginfo_t info;
        struct timespec zero = {0};

        __atomic_add_fetch(&blocked, 1, __ATOMIC_SEQ_CST);
        victim_wait();
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 1);
        for (int k = 0; k <= i; k++)
                if (sigtimedwait(&set, &info, &zero) != SIGRTMIN + 1 || info.si_int != 100 * i + k ||
                    info.si_code != SI_QUEUE)
                        bad = "a queued signal of a thread is missing or another one";
        if (sigtimedwait(&set, &info, &zero) != -1)
                bad = "a thread got a signal too many";
        sigaddset(&set, SIGUSR1);
        if (sigtimedwait(&set, &info, &zero) != (i == 2 ? SIGUSR1 : -1) ||
            (i == 2 && info.si_code != SI_USER)) /* as glibc shows SI_TKILL */
                bad = "tgkill's signal went astray";
        return arg;
}

int main(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 1);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        while (blocked < N)
                usleep(1000);
        for (int i = 0; i < N; i++)
                for (int k = 0; k <= i; k++)
                        CHECK(pthread_sigqueue(t[i], SIGRTMIN + 1, (union sigval){.sival_int = 100 * i + k}) == 0);
        CHECK(pthread_kill(t[2], SIGUSR1) == 0);
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
