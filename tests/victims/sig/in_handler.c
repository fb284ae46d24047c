/* Frozen inside nested signal handlers: their masks are undone as they return, and the interrupted call ends in EINTR. */
#include "../blocked.h"

static volatile int depth;

static void inner(int sig)
{
        depth = 2;
        victim_wait();
}
static void outer(int sig)
{
        depth = 1;
        raise(SIGUSR2);
}

static long run(void)
{
        int p[2];
        char c;
        sigset_t now;
        struct sigaction a = {.sa_handler = outer}, b = {.sa_handler = inner};

        sigaddset(&a.sa_mask, SIGHUP);
        sigaddset(&b.sa_mask, SIGTERM);
        sigaction(SIGUSR1, &a, NULL);
        sigaction(SIGUSR2, &b, NULL);
        CHECK(pipe(p) == 0);
        long r = read(p[0], &c, 1);
        int e = errno;
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        for (int s = 1; s < 64; s++)
                if (sigismember(&now, s) == 1)
                        return -2;
        errno = e;
        return r;
}

int main(void)
{
        struct blocked row = {.name = "read", .nr = SYS_read, .run = run, .want = -EINTR};

        block_all(&row, 1);
        CHECK(pthread_kill(row.thread, SIGUSR1) == 0);
        while (depth < 2)
                usleep(1000);
        victim_ready();
        victim_wait();
        join_all(&row, 1);
        victim_pass();
}
