#include "base/thread.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int cop_thread_start(pthread_t *ret, const cpu_set_t *cpus, void *(*run)(void *userdata), void *userdata)
{
        pthread_attr_t attr;
        sigset_t all, old;
        int r = pthread_attr_init(&attr);

        if (r != 0)
                return -r;
        if (cpus)
                r = pthread_attr_setaffinity_np(&attr, sizeof(*cpus), cpus);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        if (r == 0)
                r = pthread_create(ret, &attr, run, userdata);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attr);
        return -r;
}

bool cop_other_cpus(cpu_set_t *ret)
{
        unsigned cpu;

        /* Not sched_getcpu(), which believes what the kernel has last written to the thread's memory: in a child that shares it, or has a
         * copy of it, that may be the parent's. */
        if (sched_getaffinity(0, sizeof(*ret), ret) < 0 || syscall(SYS_getcpu, &cpu, NULL, NULL) < 0)
                return false;
        CPU_CLR(cpu, ret);
        return CPU_COUNT(ret) > 0;
}

void cop_all_cpus(cpu_set_t *ret)
{
        static _Atomic int online;

        if (online == 0)
                online = (int)sysconf(_SC_NPROCESSORS_ONLN);
        if (sched_getaffinity(0, sizeof(*ret), ret) < 0 || CPU_COUNT(ret) >= online)
                memset(ret, 0xff, sizeof(*ret));
}

void cop_step_aside(void)
{
        cpu_set_t all, others;

        if (!cop_other_cpus(&others))
                return;
        cop_all_cpus(&all);
        (void)sched_setaffinity(0, sizeof(others), &others);
        (void)sched_setaffinity(0, sizeof(all), &all);
}
