/* timerfd: armed with remaining time, interval, expired and unread, absolute, cancel-on-set, non-blocking, in an epoll. */
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "../victim.h"

int main(void)
{
        struct itimerspec armed = {.it_value = {100, 0}, .it_interval = {3, 1}}, soon = {.it_value = {0, 300000000}},
                          ticks = {.it_value = {0, 5000000}, .it_interval = {0, 5000000}}, abs = {0}, now;
        uint64_t n;

        int a = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), e = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK),
            i = timerfd_create(CLOCK_BOOTTIME, 0), d = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK),
            o = timerfd_create(CLOCK_MONOTONIC, 0), w = timerfd_create(CLOCK_REALTIME, 0);
        clock_gettime(CLOCK_MONOTONIC, &abs.it_value);
        abs.it_value.tv_sec += 1;
        CHECK(timerfd_settime(a, 0, &armed, NULL) == 0 && timerfd_settime(i, 0, &ticks, NULL) == 0);
        CHECK(timerfd_settime(o, TFD_TIMER_ABSTIME, &abs, NULL) == 0);
        armed.it_interval.tv_nsec = 9;
        CHECK(timerfd_settime(w, TFD_TIMER_CANCEL_ON_SET, &armed, NULL) == 0);
        ticks.it_interval = (struct timespec){0};
        CHECK(timerfd_settime(e, 0, &ticks, NULL) == 0);
        int ep = epoll_create1(0), s = timerfd_create(CLOCK_MONOTONIC, 0);
        CHECK(timerfd_settime(s, 0, &soon, NULL) == 0);
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 5}, got;
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) == 0);
        usleep(60000);
        victim_ready();
        victim_wait();
        CHECK(timerfd_gettime(a, &now) == 0 && now.it_value.tv_sec > 60 && now.it_value.tv_sec < 100 &&
              now.it_interval.tv_sec == 3 && now.it_interval.tv_nsec == 1);
        CHECK(timerfd_gettime(w, &now) == 0 && now.it_value.tv_sec > 60 && now.it_value.tv_sec < 100);
        CHECK(read(e, &n, 8) == 8 && n == 1); /* expired before the freeze, not read till now */
        CHECK(read(e, &n, 8) == -1 && errno == EAGAIN);
        CHECK(timerfd_gettime(d, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0 &&
              read(d, &n, 8) == -1);
        CHECK(read(i, &n, 8) == 8 && n >= 5);
        CHECK(read(i, &n, 8) == 8);
        CHECK(epoll_wait(ep, &got, 1, 5000) == 1 && got.data.u32 == 5);
        CHECK(read(o, &n, 8) == 8 && n == 1);
        clock_gettime(CLOCK_MONOTONIC, &now.it_value);
        CHECK(now.it_value.tv_sec > abs.it_value.tv_sec ||
              (now.it_value.tv_sec == abs.it_value.tv_sec && now.it_value.tv_nsec >= abs.it_value.tv_nsec));
        victim_pass();
}
