/* Mutexes of all types held over the thaw by threads that know it: recursive depth, errorcheck owner, PI owner, rwlock. */
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

static pthread_mutex_t recursive, check, pi;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static volatile int held;

static void *holder(void *arg)
{
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&check);
        pthread_mutex_lock(&pi);
        pthread_rwlock_wrlock(&rw);
        held = 1;
        victim_wait();
        usleep(30000);
        int r = pthread_mutex_unlock(&recursive) | pthread_mutex_unlock(&recursive) | pthread_mutex_unlock(&check) |
                pthread_mutex_unlock(&pi) | pthread_rwlock_unlock(&rw);
        return (void *)(long)(r == 0 && pthread_mutex_unlock(&check) == EPERM);
}

static void *waiter(void *arg)
{
        int r = pthread_mutex_lock(&pi);
        return (void *)(long)(r == 0 && pthread_mutex_unlock(&pi) == 0);
}

int main(void)
{
        pthread_mutexattr_t a;
        pthread_t h, w;
        void *ok;

        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&recursive, &a);
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
        pthread_mutex_init(&check, &a);
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_NORMAL);
        pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
        CHECK(pthread_mutex_init(&pi, &a) == 0);
        CHECK(pthread_create(&h, NULL, holder, NULL) == 0);
        while (!held)
                usleep(1000);
        CHECK(pthread_create(&w, NULL, waiter, NULL) == 0); /* waits in FUTEX_LOCK_PI */
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(pthread_mutex_unlock(&check) == EPERM && pthread_mutex_trylock(&recursive) == EBUSY);
        CHECK(pthread_mutex_lock(&pi) == 0 && pthread_mutex_unlock(&pi) == 0);
        CHECK(pthread_rwlock_rdlock(&rw) == 0);
        CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&check) == 0);
        CHECK(pthread_join(h, &ok) == 0 && ok && pthread_join(w, &ok) == 0 && ok);
        victim_pass();
}
