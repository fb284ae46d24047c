/* Robust mutexes, private and shared between processes: an owner that dies after the thaw leaves EOWNERDEAD. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

struct shared {
        pthread_mutex_t private_one, shared_one;
        volatile int held;
};
static struct shared *s;

static void *holder(void *arg)
{
        pthread_mutex_lock(&s->private_one);
        s->held++;
        victim_wait();
        return arg; /* ends holding it */
}

int main(void)
{
        pthread_mutexattr_t a;
        pthread_t t;
        int st;

        s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_mutexattr_init(&a);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&s->private_one, &a);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&s->shared_one, &a);
        pid_t pid = fork();
        if (pid == 0) {
                pthread_mutex_lock(&s->shared_one);
                __atomic_add_fetch(&s->held, 1, __ATOMIC_SEQ_CST);
                victim_wait();
                _exit(0);
        }
        CHECK(pthread_create(&t, NULL, holder, NULL) == 0);
        while (s->held < 2)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(pthread_mutex_lock(&s->private_one) == EOWNERDEAD && pthread_mutex_consistent(&s->private_one) == 0);
        CHECK(pthread_mutex_lock(&s->shared_one) == EOWNERDEAD && pthread_mutex_consistent(&s->shared_one) == 0);
        CHECK(pthread_mutex_unlock(&s->shared_one) == 0 && pthread_mutex_lock(&s->shared_one) == 0);
        CHECK(pthread_join(t, NULL) == 0 && waitpid(pid, &st, 0) == pid);
        victim_pass();
}
