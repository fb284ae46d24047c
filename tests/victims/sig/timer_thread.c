/* SIGEV_THREAD_ID timers signal their own thread; SIGEV_THREAD ones (a helper thread of glibc) call on. */
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile int called;
static __thread volatile int mine;

static void on(int sig)
{
        mine++;
}
static void notify(union sigval v)
{
        __atomic_add_fetch(&called, v.sival_int, __ATOMIC_SEQ_CST);
}

static void *run(void *arg)
{
        timer_t t;
        struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
        struct itimerspec its = {{0, 10000000}, {0, 10000000}};

        ev.sigev_notify_thread_id = gettid();
        if (timer_create(CLOCK_MONOTONIC, &ev, &t) != 0 || timer_settime(t, 0, &its, NULL) != 0)
                return NULL;
        victim_wait();
        int before = mine;
        for (int i = 0; i < 2000 && mine < before + 5; i++)
                usleep(1000);
        return mine >= before + 5 ? arg : NULL;
}

int main(void)
{
        pthread_t t[3];
        timer_t timer;
        void *ok;
        struct sigevent ev = {
                .sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify, .sigev_value.sival_int = 1};
        struct itimerspec its = {{0, 10000000}, {0, 10000000}};

        signal(SIGUSR1, on);
        CHECK(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0 && timer_settime(timer, 0, &its, NULL) == 0);
        for (long i = 0; i < 3; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)1) == 0);
        usleep(30000);
        victim_ready();
        victim_wait();
        int before = called;
        for (int i = 0; i < 3; i++)
                CHECK(pthread_join(t[i], &ok) == 0 && ok);
        for (int i = 0; i < 3000 && called < before + 5; i++)
                usleep(1000);
        CHECK(called >= before + 5 && mine == 0);
        victim_pass();
}
