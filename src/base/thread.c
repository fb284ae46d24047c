#include "base/thread.h"

#include <signal.h>

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
        if (sched_getaffinity(0, sizeof(*ret), ret) < 0)
                return false;
        CPU_CLR(sched_getcpu(), ret);
        return CPU_COUNT(ret) > 0;
}
