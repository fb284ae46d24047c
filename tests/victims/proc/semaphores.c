/* Unnamed and named POSIX semaphores, shared with a child, and a condition variable shared between processes. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

/* In flavour fork both copies would count on one file, in run-on the source removes it.
 * victim: flavours=unfrozen,kill,twice,tracked */
struct shared {
        sem_t sem;
        pthread_mutex_t mutex;
        pthread_cond_t cond;
        int flag;
};

int main(void)
{
        struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_mutexattr_t ma;
        pthread_condattr_t ca;
        char name[64];
        int st;

        sem_init(&s->sem, 1, 0);
        pthread_mutexattr_init(&ma);
        pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&s->mutex, &ma);
        pthread_condattr_init(&ca);
        pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
        pthread_cond_init(&s->cond, &ca);
        snprintf(name, sizeof(name), "/victim-%ld", (long)time(NULL) * 1000 + getpid());
        sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
        CHECK(named != SEM_FAILED && sem_unlink(name) == 0 && sem_wait(named) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (sem_wait(&s->sem) != 0)
                        _exit(1);
                pthread_mutex_lock(&s->mutex);
                while (!s->flag)
                        pthread_cond_wait(&s->cond, &s->mutex);
                pthread_mutex_unlock(&s->mutex);
                _exit(sem_post(named) == 0 ? 0 : 2);
        }
        victim_ready();
        victim_wait();
        CHECK(sem_post(&s->sem) == 0);
        usleep(20000);
        pthread_mutex_lock(&s->mutex);
        s->flag = 1;
        pthread_cond_broadcast(&s->cond);
        pthread_mutex_unlock(&s->mutex);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        int value;
        CHECK(sem_getvalue(named, &value) == 0 && value == 2);
        victim_pass();
}
