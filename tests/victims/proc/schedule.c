/* Nice values (per thread), scheduling policy and priority, CPU affinity, timer slack, I/O priority. */
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/syscall.h>

#include "../victim.h"

static volatile int ready;
static const char *bad;

static void *run(void *arg)
{
        struct sched_param zero = {0};
        cpu_set_t one, now;

        CPU_ZERO(&one);
        CPU_SET(0, &one);
        setpriority(PRIO_PROCESS, 0, 11); /* of this thread only */
        sched_setscheduler(0, SCHED_BATCH, &zero);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        prctl(PR_SET_TIMERSLACK, 123456);
        syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6);
        ready = 1;
        victim_wait();
        if (getpriority(PRIO_PROCESS, 0) != 11)
                bad = "nice of the thread";
        else if (sched_getscheduler(0) != SCHED_BATCH)
                bad = "policy of the thread";
        else if (pthread_getaffinity_np(pthread_self(), sizeof(now), &now) != 0 || !CPU_EQUAL(&one, &now))
                bad = "affinity of the thread";
        else if (prctl(PR_GET_TIMERSLACK) != 123456)
                bad = "timer slack";
        else if (syscall(SYS_ioprio_get, 1, 0) != (2 << 13 | 6))
                bad = "I/O priority";
        return arg;
}

/* One that never asked for anything: it does not get the scheduling of the engine that thaws it. */
static pid_t start_plain(void)
{
        int nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
        pid_t pid = fork();

        if (pid == 0) {
                victim_wait();
                _exit(getpriority(PRIO_PROCESS, 0) == nice && sched_getscheduler(0) == policy ? 0 : 1);
        }
        return pid;
}

/* Real time, where that is allowed: with --flavours no-user. */
static pid_t start_real_time(int *ret_policy)
{
        struct sched_param five = {.sched_priority = 5};
        pid_t pid = fork();

        if (pid == 0) {
                victim_wait();
                _exit(sched_getparam(0, &five));
        }
        CHECK(sched_setscheduler(pid, SCHED_RR | SCHED_RESET_ON_FORK, &five) == 0 || errno == EPERM);
        *ret_policy = sched_getscheduler(pid);
        return pid;
}

int main(void)
{
        struct sched_param param;
        int policy;
        pid_t real_time = start_real_time(&policy);
        pid_t plain = start_plain();
        pthread_t t;
        cpu_set_t all, now;
        int status;

        CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0 && sched_getaffinity(0, sizeof(all), &all) == 0);
        CHECK(pthread_create(&t, NULL, run, NULL) == 0);
        while (!ready)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(sched_getscheduler(real_time) == policy && sched_getparam(real_time, &param) == 0);
        CHECK(param.sched_priority == (policy == SCHED_OTHER ? 0 : 5));
        CHECK(waitpid(real_time, &status, 0) == real_time && status == 0);
        pthread_join(t, NULL);
        if (bad)
                victim_fail("%s is another one", bad);
        CHECK(getpriority(PRIO_PROCESS, 0) == 5 && sched_getscheduler(0) == SCHED_OTHER);
        CHECK(sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&all, &now));
        CHECK(waitpid(plain, &status, 0) == plain && status == 0);
        victim_pass();
}
