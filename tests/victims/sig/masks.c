/* Signal masks of each thread and of a process, also in a thread that sits in ppoll with another one. */
#include <poll.h>

#include "../blocked.h"

#define N 8
static const char *bad;

static void set_of(sigset_t *set, int i)
{
        sigemptyset(set);
        for (int s = 1; s <= 64; s++)
                if (s != SIGKILL && s != SIGSTOP && s != 32 && s != 33 && s % (i + 2) == 0)
                        sigaddset(set, s);
}

static void *run(void *arg)
{
        int i = (int)(long)arg;
        sigset_t set, now;
        struct timespec ts = {0, 300000000};

        set_of(&set, i);
        pthread_sigmask(SIG_SETMASK, &set, NULL);
        do {
                sigset_t none;
                sigfillset(&none);
                ppoll(NULL, 0, &ts, &none);
        } while (!victim_gone());
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        for (int s = 1; s <= 64; s++)
                if (s != 32 && s != 33 && sigismember(&now, s) != sigismember(&set, s))
                        bad = "a thread's mask changed";
        return arg;
}

int main(void)
{
        pthread_t t[N];
        sigset_t set, now;

        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        set_of(&set, 11);
        pthread_sigmask(SIG_SETMASK, &set, NULL);
        usleep(30000);
        victim_ready();
        victim_wait();
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        for (int s = 1; s <= 64; s++)
                if (s != 32 && s != 33)
                        CHECK(sigismember(&now, s) == sigismember(&set, s));
        for (int i = 0; i < N; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
