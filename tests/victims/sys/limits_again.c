/* Calls with a time limit that are made again and again from the same place, and end early now and then: none may be taken for the
 * one before it, whose time has nearly passed.  Each that times out has waited its full time; and none waits for long. */
#include <linux/futex.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "../blocked.h"

#define LIMIT_MS 150

static int event, e, ticks, e_ticks, word;

static long by_epoll(void)
{
        struct epoll_event ev;
        return epoll_wait(e, &ev, 1, LIMIT_MS);
}
static long by_poll(void)
{
        struct pollfd p = {.fd = event, .events = POLLIN};
        return poll(&p, 1, LIMIT_MS);
}
static long by_futex(void)
{
        struct timespec ts = {0, LIMIT_MS * 1000000};
        return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0) == 0 ? 1
               : errno == ETIMEDOUT                                                ? 0
                                                                                   : -errno;
}
static long by_signal(void)
{
        struct timespec ts = {0, LIMIT_MS * 1000000};
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        return sigtimedwait(&set, NULL, &ts) == SIGUSR1 ? 1 : errno == EAGAIN ? 0 : -errno;
}

/* Woken every 7 ms, so that it often is while the tree stands still. */
static long by_ticks(void)
{
        struct epoll_event ev;
        uint64_t count;
        long r = epoll_wait(e_ticks, &ev, 1, LIMIT_MS);

        (void)!read(ticks, &count, sizeof(count));
        return r;
}

static void tick(bool on)
{
        struct itimerspec its = {.it_interval.tv_nsec = on ? 7000000 : 0, .it_value.tv_nsec = on ? 7000000 : 0};

        CHECK(timerfd_settime(ticks, 0, &its, NULL) == 0);
}

static struct row {
        const char *name;
        long (*run)(void);
        pthread_t thread;
        int ended, woken, over;
        double shortest, longest;
} rows[] = {
        {.name = "epoll_wait", .run = by_epoll},
        {.name = "poll", .run = by_poll},
        {.name = "futex", .run = by_futex},
        {.name = "sigtimedwait", .run = by_signal},
        {.name = "epoll_wait with ticks", .run = by_ticks},
};

static void *again(void *arg)
{
        struct row *row = arg;

        row->shortest = 1e9;
        while (!__atomic_load_n(&row->ended, __ATOMIC_SEQ_CST)) {
                double began = clock_now(CLOCK_MONOTONIC);
                long r = row->run();
                double took = clock_now(CLOCK_MONOTONIC) - began;
                if (r < 0)
                        victim_fail("%s returned %ld", row->name, r);
                row->woken += r > 0;
                row->over += r == 0;
                if (r == 0 && took < row->shortest)
                        row->shortest = took;
                if (took > row->longest)
                        row->longest = took;
        }
        return NULL;
}

/* Wakes all of them, at a pace that is no multiple of anything. */
static void wake(unsigned turn)
{
        uint64_t one = 1, got;

        CHECK(write(event, &one, sizeof(one)) == sizeof(one));
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        pthread_kill(rows[3].thread, SIGUSR1);
        usleep(300);
        (void)!read(event, &got, sizeof(got));
        tick(turn % 8 != 7);
        usleep(turn % 8 == 7 ? LIMIT_MS * 1000 + 30000 : 1000 + turn * 7919 % 140000);
}

int main(void)
{
        struct epoll_event ev = {.events = EPOLLIN};
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        event = eventfd(0, EFD_NONBLOCK);
        e = epoll_create1(0);
        CHECK(event >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, event, &ev) == 0);
        ticks = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        e_ticks = epoll_create1(0);
        CHECK(ticks >= 0 && epoll_ctl(e_ticks, EPOLL_CTL_ADD, ticks, &ev) == 0);
        tick(true);
        for (size_t i = 0; i < ROWS(rows); i++)
                CHECK(pthread_create(&rows[i].thread, NULL, again, &rows[i]) == 0);
        victim_ready();
        unsigned turn = 0;
        while (!victim_gone())
                wake(turn++);
        for (unsigned end = turn + 16; turn < end; turn++)
                wake(turn);
        for (size_t i = 0; i < ROWS(rows); i++)
                __atomic_store_n(&rows[i].ended, 1, __ATOMIC_SEQ_CST);
        for (size_t i = 0; i < ROWS(rows); i++) {
                CHECK(pthread_join(rows[i].thread, NULL) == 0);
                if (rows[i].over == 0 || rows[i].woken == 0)
                        victim_fail("%s: woken %d times, timed out %d times", rows[i].name, rows[i].woken,
                                    rows[i].over);
                if (rows[i].shortest < LIMIT_MS / 1e3 - 0.001)
                        victim_fail("%s timed out after %.4f s", rows[i].name, rows[i].shortest);
                if (rows[i].longest > 5)
                        victim_fail("%s took %.3f s", rows[i].name, rows[i].longest);
        }
        victim_pass();
}
