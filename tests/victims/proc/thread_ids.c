/* Thread ids: cached and real ones agree, pthread_kill and tgkill reach the right thread, pthread_join clears the tid. */
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

#define N 20
static pid_t tid[N];
static volatile int hit[N], end;
static __thread int me = -1;

static void on(int sig)
{
        if (me >= 0)
                hit[me] = sig;
}

static void *run(void *arg)
{
        me = (int)(long)arg;
        tid[me] = (pid_t)syscall(SYS_gettid);
        while (!end)
                usleep(1000 + 100 * me);
        return (void *)(long)(gettid() == tid[me] && (pid_t)syscall(SYS_gettid) == tid[me]);
}

int main(void)
{
        pthread_t t[N];
        void *ok;

        signal(SIGUSR1, on);
        signal(SIGUSR2, on);
        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        for (int i = 0; i < N; i++)
                while (!tid[i])
                        usleep(500);
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++) {
                CHECK(i % 2 ? pthread_kill(t[i], SIGUSR1) == 0 : syscall(SYS_tgkill, getpid(), tid[i], SIGUSR2) == 0);
                for (int k = 0; k < 3000 && !hit[i]; k++)
                        usleep(1000);
                CHECK(hit[i] == (i % 2 ? SIGUSR1 : SIGUSR2));
        }
        end = 1;
        for (int i = 0; i < N; i++)
                CHECK(pthread_join(t[i], &ok) == 0 && ok);
        victim_pass();
}
