/* poll, ppoll, select and pselect time out, never early. */
#include <poll.h>
#include <sys/select.h>

#include "../blocked.h"

static int p[2];

static long by_poll(void)
{
        struct pollfd f = {.fd = p[0], .events = POLLIN};
        return poll(&f, 1, 900);
}
static long by_ppoll(void)
{
        struct pollfd f = {.fd = p[0], .events = POLLIN};
        struct timespec ts = {0, 900000000};
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR2);
        return ppoll(&f, 1, &ts, &mask);
}
static long by_select(void)
{
        fd_set set;
        struct timeval tv = {0, 900000};
        FD_ZERO(&set);
        FD_SET(p[0], &set);
        return select(p[0] + 1, &set, NULL, NULL, &tv);
}
static long by_pselect(void)
{
        struct timespec ts = {0, 900000000};
        return pselect(0, NULL, NULL, NULL, &ts, NULL);
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "poll", .nr = SYS_poll, .run = by_poll},
                {.name = "ppoll", .nr = SYS_ppoll, .run = by_ppoll},
                {.name = "select", .nr = SYS_pselect6, .run = by_select},
                {.name = "pselect", .nr = SYS_pselect6, .run = by_pselect},
        };

        CHECK(pipe(p) == 0);
        timed_all(rows, ROWS(rows), 0.9, 0);
        victim_pass();
}
