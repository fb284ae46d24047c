/* rseq is registered still in each thread, main one too: cpu_id is kept up to date by the kernel, sched_getcpu is right. */
#include <pthread.h>
#include <sched.h>
#include <sys/rseq.h>
#include <sys/syscall.h>

#include "../victim.h"

static const char *bad;
static volatile int here;

static struct rseq *mine(void)
{
        return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

static void check(void)
{
        unsigned cpu, node;

        for (int i = 0; i < 20; i++) {
                cpu_set_t set;
                CPU_ZERO(&set);
                CPU_SET(i % 2, &set);
                if (sched_setaffinity(0, sizeof(set), &set) != 0)
                        break;
                syscall(SYS_getcpu, &cpu, &node, NULL);
                if (mine()->cpu_id != cpu || sched_getcpu() != (int)cpu)
                        bad = "cpu_id is stale";
        }
        /* Registered: the same area again is EBUSY. */
        if (syscall(SYS_rseq, mine(), __rseq_size, 0, RSEQ_SIG) != -1 || (errno != EBUSY && errno != EINVAL))
                bad = "not registered";
}

static void *run(void *arg)
{
        here++;
        victim_wait();
        check();
        return arg;
}

int main(void)
{
        pthread_t t[3];

        if (__rseq_size == 0)
                victim_skip("no rseq in this C library");
        for (int i = 0; i < 3; i++) {
                CHECK(pthread_create(&t[i], NULL, run, NULL) == 0);
                while (here <= i)
                        usleep(500);
        }
        victim_ready();
        victim_wait();
        check();
        for (int i = 0; i < 3; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
