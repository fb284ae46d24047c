/* Epolls with a registration whose number is closed while another descriptor holds the file, free since or another file's, which may be
 * registered under it, too; one epoll in another; registrations that are exclusive, edge-triggered, for one time. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "../victim.h"

static void add(int epoll, int fd, uint32_t events, uint64_t data)
{
        struct epoll_event event = {.events = events, .data.u64 = data};

        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void ring(int fd)
{
        CHECK(write(fd, &(uint64_t){1}, 8) == 8);
}

/* This alone is reported now. */
static void expect_only(int epoll, uint64_t data)
{
        struct epoll_event events[8];

        CHECK(epoll_wait(epoll, events, 8, 1000) == 1 && events[0].data.u64 == data);
}

static int quiet(int epoll)
{
        struct epoll_event event;

        return epoll_wait(epoll, &event, 1, 0) == 0;
}

int main(void)
{
        int e = epoll_create1(0), outer = epoll_create1(0), taken = epoll_create1(0), kinds = epoll_create1(0);
        int ev = eventfd(0, 0), held = dup(ev), other = eventfd(0, 0), edge = eventfd(0, 0), once = eventfd(0, 0);

        add(e, ev, EPOLLIN, 8);
        add(taken, ev, EPOLLIN, 9);
        CHECK(close(ev) == 0);
        int now = fcntl(other, F_DUPFD, ev);
        CHECK(now == ev);
        add(taken, now, EPOLLIN, 10);
        add(outer, e, EPOLLIN, 11);
        add(kinds, edge, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 12);
        add(kinds, once, EPOLLIN | EPOLLONESHOT, 13);
        ring(once);
        expect_only(kinds, 13);
        victim_ready();
        victim_wait();
        CHECK(quiet(e) && quiet(outer) && quiet(taken) && quiet(kinds));
        ring(held);
        expect_only(e, 8);
        expect_only(outer, 11);
        expect_only(taken, 9);
        CHECK(read(held, &(uint64_t){0}, 8) == 8);
        ring(other);
        expect_only(taken, 10);
        CHECK(quiet(e) && quiet(outer) && read(now, &(uint64_t){0}, 8) == 8);
        ring(edge);
        expect_only(kinds, 12);
        CHECK(quiet(kinds));
        struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 13};
        CHECK(epoll_ctl(kinds, EPOLL_CTL_MOD, once, &again) == 0);
        expect_only(kinds, 13);
        victim_pass();
}
