/* Sleeps and timeouts go on with the time that was left at the freeze, and do not begin anew. */
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "../blocked.h"

static int e, word;

static long by_nanosleep(void)
{
        struct timespec ts = {0, 900000000};
        return syscall(SYS_nanosleep, &ts, NULL);
}
static long by_clock(void)
{
        struct timespec ts = {0, 900000000};
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}
static long by_poll(void)
{
        return poll(NULL, 0, 900);
}
static long by_ppoll(void)
{
        struct timespec ts = {0, 900000000};
        return ppoll(NULL, 0, &ts, NULL);
}
static long by_select(void)
{
        struct timeval tv = {0, 900000};
        return select(0, NULL, NULL, NULL, &tv);
}
static long by_epoll(void)
{
        struct epoll_event ev;
        return syscall(SYS_epoll_wait, e, &ev, 1, 900);
}
static long by_futex(void)
{
        struct timespec ts = {0, 900000000};
        return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0);
}
static long by_sigtimedwait(void)
{
        sigset_t set;
        struct timespec ts = {0, 900000000};

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        return sigtimedwait(&set, NULL, &ts);
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "ppoll", .nr = SYS_ppoll, .run = by_ppoll},
                {.name = "select", .nr = SYS_pselect6, .run = by_select},
                {.name = "nanosleep", .nr = SYS_nanosleep, .run = by_nanosleep},
                {.name = "clock_nanosleep", .nr = SYS_clock_nanosleep, .run = by_clock},
                {.name = "poll", .nr = SYS_poll, .run = by_poll},
                {.name = "futex", .nr = SYS_futex, .run = by_futex, .want = -ETIMEDOUT},
                {.name = "epoll_wait", .nr = SYS_epoll_wait, .run = by_epoll},
                {.name = "sigtimedwait", .nr = SYS_rt_sigtimedwait, .run = by_sigtimedwait, .want = -EAGAIN},
        };

        e = epoll_create1(0);
        timed_all(rows, ROWS(rows), 0.9, 1);
        victim_pass();
}
