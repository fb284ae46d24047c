/* 80 threads, each with its own name, mask, nice value, thread-local data and alternate stack, that wait in different ways: for a
 * barrier, a condition with a far end, a read-write lock, a mutex with priority inheritance, a raw futex that is then requeued. */
#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../victim.h"

#define THREADS 80
#define KINDS 5

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, inherits;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int flag, word, other_word;
static volatile int started, failed;
static __thread long own;

static long futex(int *at, int op, int value, long timeout, int *second, int third)
{
        return syscall(SYS_futex, at, op | FUTEX_PRIVATE_FLAG, value, timeout, second, third);
}

static void wait_somehow(long i)
{
        struct timespec far = {.tv_sec = time(NULL) + 3600};

        switch (i % KINDS) {
        case 0:
                pthread_barrier_wait(&barrier);
                break;
        case 1:
                pthread_mutex_lock(&mutex);
                while (!flag)
                        if (pthread_cond_timedwait(&cond, &mutex, &far) != 0)
                                failed = 1;
                pthread_mutex_unlock(&mutex);
                break;
        case 2:
                pthread_rwlock_rdlock(&rwlock);
                pthread_rwlock_unlock(&rwlock);
                break;
        case 3:
                if (pthread_mutex_lock(&inherits) != 0 || pthread_mutex_unlock(&inherits) != 0)
                        failed = 2;
                break;
        default:
                while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
                        futex(&word, FUTEX_WAIT, 0, 0, NULL, 0);
        }
}

static void *thread(void *arg)
{
        static __thread char stack[8192];
        long i = (long)arg;
        char name[16], now[16];
        stack_t mine = {.ss_sp = stack, .ss_size = sizeof(stack)}, told;
        sigset_t mask, got;

        snprintf(name, sizeof(name), "thread %ld", i);
        prctl(PR_SET_NAME, name);
        sigemptyset(&mask);
        sigaddset(&mask, (int)(i % 25) + 34);
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        setpriority(PRIO_PROCESS, 0, (int)(i % 19));
        sigaltstack(&mine, NULL);
        own = i * 1000003;
        __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
        wait_somehow(i);
        prctl(PR_GET_NAME, now);
        pthread_sigmask(SIG_SETMASK, NULL, &got);
        sigaltstack(NULL, &told);
        if (strcmp(name, now) != 0 || memcmp(&mask, &got, 8) != 0 || getpriority(PRIO_PROCESS, 0) != (int)(i % 19) ||
            own != i * 1000003 || told.ss_sp != stack)
                failed = 3;
        return NULL;
}

int main(void)
{
        static pthread_t ids[THREADS];
        pthread_mutexattr_t attr;

        CHECK(pthread_barrier_init(&barrier, NULL, THREADS / KINDS + 1) == 0 && pthread_rwlock_wrlock(&rwlock) == 0);
        CHECK(pthread_mutexattr_init(&attr) == 0 && pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT) == 0);
        CHECK(pthread_mutex_init(&inherits, &attr) == 0 && pthread_mutex_lock(&inherits) == 0);
        for (long i = 0; i < THREADS; i++)
                CHECK(pthread_create(&ids[i], NULL, thread, (void *)i) == 0);
        while (started < THREADS)
                usleep(1000);
        usleep(50000);
        victim_ready();
        victim_wait();
        pthread_barrier_wait(&barrier);
        pthread_mutex_lock(&mutex);
        flag = 1;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
        CHECK(pthread_rwlock_unlock(&rwlock) == 0 && pthread_mutex_unlock(&inherits) == 0);
        CHECK(futex(&word, FUTEX_CMP_REQUEUE, 1, 1000, &other_word, 0) >= 0);
        __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
        CHECK(futex(&word, FUTEX_WAKE, 1000, 0, NULL, 0) >= 0); /* who was woken and waits again */
        CHECK(futex(&other_word, FUTEX_WAKE, 1000, 0, NULL, 0) >= 0);
        for (int i = 0; i < THREADS; i++)
                CHECK(pthread_join(ids[i], NULL) == 0);
        if (failed)
                victim_fail("check %d", failed);
        victim_pass();
}
