/* After the thaw a signal interrupts blocked calls as ever: EINTR without SA_RESTART, going on with it. */
#include "../blocked.h"

static int p[2], q[2];
static volatile int got;

static void on(int sig)
{
        got = sig;
}

static int reader(int fd, int flags)
{
        struct sigaction sa = {.sa_handler = on, .sa_flags = flags};
        char c;

        sigaction(SIGUSR1, &sa, NULL);
        ssize_t n = read(fd, &c, 1);
        return !got ? 1 : n == 1 ? 3 : errno == EINTR ? 4 : 2;
}
static int interrupted(void)
{
        return reader(p[0], 0);
}
static int restarted(void)
{
        return reader(q[0], SA_RESTART);
}
static int sleeper(void)
{
        struct sigaction sa = {.sa_handler = on};
        struct timespec ts = {60, 0}, left = {0, 0};

        sigaction(SIGUSR1, &sa, NULL);
        int r = nanosleep(&ts, &left);
        return r == -1 && errno == EINTR && left.tv_sec > 40 && left.tv_sec < 60 ? 5 : 6;
}

int main(void)
{
        CHECK(pipe(p) == 0 && pipe(q) == 0);
        pid_t a = block_process(SYS_read, interrupted), b = block_process(SYS_read, restarted),
              c = block_process(SYS_clock_nanosleep, sleeper);
        victim_ready();
        victim_wait();
        usleep(10000);
        CHECK(kill(a, SIGUSR1) == 0 && kill(b, SIGUSR1) == 0 && kill(c, SIGUSR1) == 0);
        CHECK(status_of(a) == 4);
        CHECK(status_of(c) == 5);
        usleep(20000);
        CHECK(waitpid(b, NULL, WNOHANG) == 0 && write(q[1], "x", 1) == 1);
        CHECK(status_of(b) == 3);
        victim_pass();
}
