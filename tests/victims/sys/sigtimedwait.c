/* sigtimedwait sees no EINTR from the freeze (nothing of its own was signalled), for a thread and its time. */
#include "../blocked.h"

static long run(void)
{
        sigset_t set;
        struct timespec ts = {0, 900000000};

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        return sigtimedwait(&set, NULL, &ts);
}

int main(void)
{
        struct blocked rows[] = {{.name = "sigtimedwait", .nr = SYS_rt_sigtimedwait, .run = run, .want = -EAGAIN}};

        timed_all(rows, 1, 0.9, 0);
        victim_pass();
}
