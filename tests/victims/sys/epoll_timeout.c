/* epoll_wait and epoll_pwait2 see neither EINTR nor an early end of their timeout. */
#include <sys/epoll.h>

#include "../blocked.h"

static int e;

static long by_wait(void)
{
        struct epoll_event ev;
        return syscall(SYS_epoll_wait, e, &ev, 1, 900);
}
static long by_pwait(void)
{
        struct epoll_event ev;
        return epoll_pwait(e, &ev, 1, 900, NULL);
}
static long by_pwait2(void)
{
        struct epoll_event ev;
        struct timespec ts = {0, 900000000};
        return syscall(SYS_epoll_pwait2, e, &ev, 1, &ts, NULL, 8);
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "epoll_wait", .nr = SYS_epoll_wait, .run = by_wait},
                {.name = "epoll_pwait", .nr = SYS_epoll_pwait, .run = by_pwait},
                {.name = "epoll_pwait2", .nr = SYS_epoll_pwait2, .run = by_pwait2},
        };

        e = epoll_create1(EPOLL_CLOEXEC);
        timed_all(rows, ROWS(rows), 0.9, 0);
        victim_pass();
}
