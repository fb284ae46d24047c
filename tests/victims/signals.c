/* Masks, actions, an alternate stack, pending signals with their values, timers, and calls that were interrupted. */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "victim.h"

static volatile sig_atomic_t hits, value, on_altstack, timer_hits, itimer_hits;
static char alt[65536] __attribute__((aligned(16)));

static void handler(int sig, siginfo_t *info, void *context)
{
        char here;

        (void)context;
        (void)sig;
        hits++;
        value = info->si_value.sival_int;
        on_altstack = &here >= alt && &here < alt + sizeof(alt);
}

static void on_timer(int sig)
{
        (void)sig;
        timer_hits++;
}

static void on_itimer(int sig)
{
        (void)sig;
        itimer_hits++;
}

static void *wait_epoll(void *arg)
{
        struct epoll_event e;
        int ep = epoll_create1(0), *p = arg;
        struct epoll_event add = {.events = EPOLLIN};

        if (epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &add) < 0)
                return (void *)1;
        return epoll_wait(ep, &e, 1, -1) == 1 ? NULL : (void *)2;
}

static void *wait_read(void *arg)
{
        char c;

        return read(((int *)arg)[0], &c, 1) == 1 ? NULL : (void *)3;
}

static void *wait_poll(void *arg)
{
        struct pollfd p = {.fd = ((int *)arg)[0], .events = POLLIN};

        return poll(&p, 1, 3600 * 1000) == 1 ? NULL : (void *)4;
}

static void *wait_sleep(void *arg)
{
        struct timespec ts = {.tv_nsec = 400000000}, rem;

        (void)arg;
        return nanosleep(&ts, &rem) == 0 ? NULL : (void *)5;
}

static void *wait_signal(void *arg)
{
        sigset_t set;

        (void)arg;
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 3);
        return sigwaitinfo(&set, NULL) == SIGRTMIN + 3 ? NULL : (void *)6;
}

int main(void)
{
        struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        stack_t ss = {.ss_sp = alt, .ss_size = sizeof(alt)}, now;
        sigset_t set, old;
        pthread_t t[5];
        int a[2], b[2], c[2];
        timer_t timer;

        CHECK(pipe(a) == 0 && pipe(b) == 0 && pipe(c) == 0);
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 1);
        sigaddset(&set, SIGRTMIN + 3);
        sigaddset(&set, SIGHUP);
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
        CHECK(sigaltstack(&ss, NULL) == 0 && sigaction(SIGRTMIN + 1, &sa, NULL) == 0);
        signal(SIGTERM, SIG_IGN);
        signal(SIGALRM, on_itimer);
        signal(SIGUSR1, on_timer);
        for (int i = 1; i <= 3; i++)
                CHECK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 100 + i}) == 0);
        pthread_kill(pthread_self(), SIGHUP);
        CHECK(pthread_create(&t[0], NULL, wait_epoll, a) == 0 && pthread_create(&t[1], NULL, wait_read, b) == 0);
        CHECK(pthread_create(&t[2], NULL, wait_poll, c) == 0 && pthread_create(&t[3], NULL, wait_sleep, NULL) == 0);
        CHECK(pthread_create(&t[4], NULL, wait_signal, NULL) == 0);
        struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct itimerspec its = {.it_value.tv_sec = 3000, .it_interval.tv_nsec = 7000000};
        CHECK(timer_create(CLOCK_MONOTONIC, &se, &timer) == 0 && timer_settime(timer, 0, &its, NULL) == 0);
        struct itimerval it = {.it_value.tv_sec = 2000, .it_interval.tv_sec = 9};
        CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
        struct timespec mono;
        clock_gettime(CLOCK_MONOTONIC, &mono);
        victim_ready();
        victim_wait();
        struct timespec later;
        clock_gettime(CLOCK_MONOTONIC, &later);
        CHECK(later.tv_sec >= mono.tv_sec && later.tv_sec - mono.tv_sec < 30);
        pthread_sigmask(SIG_BLOCK, NULL, &old);
        CHECK(sigismember(&old, SIGRTMIN + 1) && sigismember(&old, SIGHUP) && !sigismember(&old, SIGUSR1));
        CHECK(sigpending(&old) == 0 && sigismember(&old, SIGHUP) && sigismember(&old, SIGRTMIN + 1));
        siginfo_t info;
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        CHECK(sigwaitinfo(&set, &info) == SIGHUP);
        if (info.si_code > 0 || /* libc turns SI_TKILL into SI_USER */ info.si_pid != getpid())
                victim_fail("SIGHUP came with code %d from %d", info.si_code, info.si_pid);
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 1);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        CHECK(hits == 3 && value == 103 && on_altstack == 1);
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == alt);
        CHECK(raise(SIGTERM) == 0);
        CHECK(getitimer(ITIMER_REAL, &it) == 0 && it.it_value.tv_sec > 1900 && it.it_interval.tv_sec == 9);
        CHECK(timer_gettime(timer, &its) == 0 && its.it_value.tv_sec > 2900 && its.it_interval.tv_nsec == 7000000);
        its = (struct itimerspec){.it_value.tv_nsec = 1000000};
        CHECK(timer_settime(timer, 0, &its, NULL) == 0);
        for (int i = 0; i < 1000 && !timer_hits; i++)
                usleep(1000);
        CHECK(timer_hits == 1);
        CHECK(write(a[1], "x", 1) == 1 && write(b[1], "x", 1) == 1 && write(c[1], "x", 1) == 1);
        CHECK(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 0}) == 0);
        for (int i = 0; i < 5; i++) {
                void *ret;
                CHECK(pthread_join(t[i], &ret) == 0);
                if (ret)
                        victim_fail("waiting thread %d gave %ld", i, (long)ret);
        }
        victim_pass();
}
