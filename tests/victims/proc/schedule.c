/* Nice values (per thread), scheduling policy and priority (real-time ones where they may be had: flavour no-user), CPU affinity, timer
 * slack, I/O priority. */
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

/* Who may have a real-time policy, which only a process outside user namespaces may.  0: this one may not. */
static pid_t start_real_time(void)
{
        struct sched_param want = {.sched_priority = 7}, now;
        int policy = SCHED_RR | SCHED_RESET_ON_FORK;

        if (sched_setscheduler(0, SCHED_FIFO, &want) != 0)
                return 0;
        sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
        pid_t pid = fork();
        if (pid == 0) {
                if (sched_setscheduler(0, policy, &want) != 0)
                        _exit(2);
                victim_wait();
                _exit(sched_getscheduler(0) == policy && sched_getparam(0, &now) == 0 &&
                                      now.sched_priority == want.sched_priority
                              ? 0
                              : 1);
        }
        return pid;
}

int main(void)
{
        pid_t plain = start_plain(), real_time = start_real_time();
        pthread_t t;
        cpu_set_t all, now;
        int status;

        CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0 && sched_getaffinity(0, sizeof(all), &all) == 0);
        CHECK(pthread_create(&t, NULL, run, NULL) == 0);
        while (!ready)
                usleep(1000);
        victim_ready();
        victim_wait();
        pthread_join(t, NULL);
        if (bad)
                victim_fail("%s is another one", bad);
        CHECK(getpriority(PRIO_PROCESS, 0) == 5 && sched_getscheduler(0) == SCHED_OTHER);
        CHECK(sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&all, &now));
        CHECK(waitpid(plain, &status, 0) == plain && status == 0);
        CHECK(real_time == 0 || (waitpid(real_time, &status, 0) == real_time && status == 0));
        victim_pass();
}
