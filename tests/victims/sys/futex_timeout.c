/* Futex waits with a timeout: relative, absolute (bitset), a condition variable, a semaphore, a mutex. */
#include <linux/futex.h>
#include <semaphore.h>

#include "../blocked.h"

static int word;
static sem_t sem;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static struct timespec in(clockid_t id)
{
        struct timespec ts;
        clock_gettime(id, &ts);
        ts.tv_nsec += 900000000;
        ts.tv_sec += ts.tv_nsec / 1000000000;
        ts.tv_nsec %= 1000000000;
        return ts;
}
static long relative(void)
{
        struct timespec ts = {0, 900000000};
        return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0);
}
static long absolute(void)
{
        struct timespec ts = in(CLOCK_MONOTONIC);
        return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}
static long condition(void)
{
        struct timespec ts = in(CLOCK_MONOTONIC);
        pthread_mutex_lock(&mutex);
        int r = pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &ts);
        pthread_mutex_unlock(&mutex);
        return -r;
}
static long semaphore(void)
{
        struct timespec ts = in(CLOCK_MONOTONIC);
        return sem_clockwait(&sem, CLOCK_MONOTONIC, &ts);
}
/* By the wall clock, which goes on while frozen. */
static long lock(void)
{
        struct timespec ts = in(CLOCK_REALTIME), now;
        int r = pthread_mutex_timedlock(&held, &ts);
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec < ts.tv_sec || (now.tv_sec == ts.tv_sec && now.tv_nsec < ts.tv_nsec))
                return 1;
        return -r;
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "FUTEX_WAIT", .nr = SYS_futex, .run = relative, .want = -ETIMEDOUT},
                {.name = "FUTEX_WAIT_BITSET", .nr = SYS_futex, .run = absolute, .want = -ETIMEDOUT},
                {.name = "cond_clockwait", .nr = SYS_futex, .run = condition, .want = -ETIMEDOUT},
                {.name = "sem_clockwait", .nr = SYS_futex, .run = semaphore, .want = -ETIMEDOUT},
        };
        struct blocked wall = {.name = "mutex_timedlock", .nr = SYS_futex, .run = lock, .want = -ETIMEDOUT};

        sem_init(&sem, 0, 0);
        pthread_mutex_lock(&held);
        block_all(&wall, 1);
        timed_all(rows, ROWS(rows), 0.9, 0);
        join_all(&wall, 1);
        victim_pass();
}
