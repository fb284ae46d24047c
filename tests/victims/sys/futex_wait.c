/* Futex waits without a timeout are woken by those who hold them: raw, shared between processes, barrier, rwlock, join. */
#include <linux/futex.h>
#include <sys/mman.h>

#include "../blocked.h"

static int word, *shared;
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_t other;

static long raw(void)
{
        while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
                if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) < 0 && errno != EAGAIN)
                        return -1;
        return 0;
}
static long at_barrier(void)
{
        int r = pthread_barrier_wait(&barrier);
        return r == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : r;
}
static long reader(void)
{
        return -pthread_rwlock_rdlock(&rwlock);
}
static void *nothing(void *arg)
{
        while (!victim_gone())
                usleep(2000);
        return arg;
}
static long join(void)
{
        return -pthread_join(other, NULL);
}
static int in_process(void)
{
        while (__atomic_load_n(shared, __ATOMIC_SEQ_CST) == 0)
                if (syscall(SYS_futex, shared, FUTEX_WAIT, 0, NULL, NULL, 0) < 0 && errno != EAGAIN)
                        return 1;
        return 0;
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "FUTEX_WAIT", .nr = SYS_futex, .run = raw},
                {.name = "barrier", .nr = SYS_futex, .run = at_barrier},
                {.name = "rwlock", .nr = SYS_futex, .run = reader},
                {.name = "join", .nr = SYS_futex, .run = join},
        };

        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child = block_process(SYS_futex, in_process);
        pthread_barrier_init(&barrier, NULL, 2);
        pthread_rwlock_wrlock(&rwlock);
        pthread_create(&other, NULL, nothing, NULL);
        block_all(rows, ROWS(rows));
        victim_ready();
        victim_wait();
        __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
        CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
        __atomic_store_n(shared, 1, __ATOMIC_SEQ_CST);
        CHECK(syscall(SYS_futex, shared, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
        pthread_rwlock_unlock(&rwlock);
        pthread_barrier_wait(&barrier);
        join_all(rows, ROWS(rows));
        CHECK(status_of(child) == 0);
        victim_pass();
}
