/* epoll: level, edge, oneshot (armed and spent), user data, nested, an fd added twice through dup, added by another number. */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "../victim.h"

static void add(int e, int fd, uint32_t events, uint64_t data)
{
        struct epoll_event ev = {.events = events, .data.u64 = data};

        CHECK(epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev) == 0);
}

static int take(int e, uint64_t *data, int ms)
{
        struct epoll_event ev[8];
        int n = epoll_wait(e, ev, 8, ms);

        for (int i = 0; i < n; i++)
                data[i] = ev[i].data.u64;
        return n;
}

int main(void)
{
        int level = epoll_create1(0), edge = epoll_create1(EPOLL_CLOEXEC), one = epoll_create1(0),
            outer = epoll_create1(0), inner = epoll_create1(0);
        int ev = eventfd(0, 0), hot = eventfd(1, 0), spent = eventfd(1, 0), p[2], n = eventfd(0, 0);
        uint64_t got[8], big = 0xfedcba9876543210;

        CHECK(pipe(p) == 0);
        add(level, ev, EPOLLIN, big);
        int twice = dup(ev);
        add(level, twice, EPOLLIN, 2);
        add(edge, hot, EPOLLIN | EPOLLET, 3);
        CHECK(take(edge, got, 0) == 1);
        add(edge, p[0], EPOLLIN | EPOLLET | EPOLLRDHUP, 33);
        add(one, hot, EPOLLIN | EPOLLONESHOT, 4);
        add(one, spent, EPOLLIN | EPOLLONESHOT, 5);
        CHECK(take(one, got, 0) == 2);
        struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 44};
        CHECK(epoll_ctl(one, EPOLL_CTL_MOD, hot, &again) == 0);
        add(inner, n, EPOLLIN, 6);
        add(outer, inner, EPOLLIN, 7);
        victim_ready();
        victim_wait();
        CHECK(take(level, got, 0) == 0 && write(ev, &(uint64_t){1}, 8) == 8 && take(level, got, 100) == 2);
        CHECK((got[0] == big && got[1] == 2) || (got[0] == 2 && got[1] == big));
        CHECK(take(level, got, 0) == 2);
        /* An edge that was taken may show once more, as after epoll_ctl; a new one must show. */
        (void)take(edge, got, 0);
        CHECK(write(p[1], "x", 1) == 1 && take(edge, got, 100) == 1 && got[0] == 33 && take(edge, got, 0) == 0);
        CHECK(take(one, got, 100) == 1 && got[0] == 44 && take(one, got, 0) == 0); /* the spent one stays spent */
        CHECK(epoll_ctl(one, EPOLL_CTL_MOD, spent, &again) == 0 && take(one, got, 100) == 1);
        CHECK(take(outer, got, 0) == 0 && write(n, &(uint64_t){1}, 8) == 8 && take(outer, got, 100) == 1 &&
              got[0] == 7 && take(inner, got, 0) == 1 && got[0] == 6);
        CHECK(epoll_ctl(level, EPOLL_CTL_DEL, twice, NULL) == 0 && take(level, got, 0) == 1 && got[0] == big);
        victim_pass();
}
