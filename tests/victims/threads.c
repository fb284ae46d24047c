/* 64 threads, each in a loop, a condition wait or a sleep; thread ids, thread-local data, names, vector registers. */
#include <immintrin.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "victim.h"

#define N 64
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int open_gate, here;
static __thread int local;
static const char *failure;

static void *run(void *arg)
{
        int i = (int)(long)arg;
        pid_t tid = (pid_t)syscall(SYS_gettid);
        char name[16], now[16];

        local = i * 3;
        snprintf(name, sizeof(name), "t%d", i);
        prctl(PR_SET_NAME, name);
        __m128i v = _mm_set1_epi32(i);
        __asm__ volatile("" : "+x"(v));
        pthread_mutex_lock(&mutex);
        here++;
        if (i % 3 == 0)
                while (!open_gate)
                        pthread_cond_wait(&cond, &mutex);
        pthread_mutex_unlock(&mutex);
        if (i % 3 == 1)
                while (!__atomic_load_n(&open_gate, __ATOMIC_SEQ_CST))
                        usleep(500);
        if (i % 3 == 2)
                while (!__atomic_load_n(&open_gate, __ATOMIC_SEQ_CST)) {
                        if (i == 2)
                                __asm__ volatile("pause" : "+x"(v));
                        else
                                usleep(300000);
                }
        int out[4];
        _mm_storeu_si128((__m128i *)out, v);
        prctl(PR_GET_NAME, now);
        if (local != i * 3 || tid != (pid_t)syscall(SYS_gettid) || strcmp(name, now) != 0 || out[2] != i)
                failure = "a thread lost its state";
        return (void *)(long)(i + 1);
}

int main(void)
{
        pthread_t t[N];

        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        for (;;) {
                pthread_mutex_lock(&mutex);
                int all = here == N;
                pthread_mutex_unlock(&mutex);
                if (all)
                        break;
                usleep(1000);
        }
        victim_ready();
        victim_wait();
        pthread_mutex_lock(&mutex);
        open_gate = 1;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
        for (long i = 0; i < N; i++) {
                void *ret;
                CHECK(pthread_join(t[i], &ret) == 0 && ret == (void *)(i + 1));
        }
        CHECK(!failure);
        victim_pass();
}
