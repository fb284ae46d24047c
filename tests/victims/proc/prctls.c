/* The rest of prctl and its kin: THP disable, machine-check policy, speculation, merging of memory, the time stamp counter and CPUID
 * that fault (in one thread only), the filter of core dumps, a policy that a child does not inherit. */
#include <asm/prctl.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../victim.h"

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

static volatile int ready;
static const char *bad;

static void *faulting(void *unused)
{
        int tsc = 0;

        if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0)
                bad = "the time stamp counter cannot be taken away";
        int cpuid = syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) == 0; /* ENODEV on many */
        ready = 1;
        while (access("go", F_OK) != 0)
                sched_yield();
        if (prctl(PR_GET_TSC, &tsc) != 0 || tsc != PR_TSC_SIGSEGV)
                bad = "the time stamp counter of a thread";
        if (cpuid && syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) != 0)
                bad = "CPUID of a thread";
        return unused;
}

static unsigned long core_filter(void)
{
        char text[32] = {0};
        int fd = open("/proc/self/coredump_filter", O_RDONLY);

        CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
        return strtoul(text, NULL, 16);
}

static int speculation(unsigned which)
{
        return prctl(PR_GET_SPECULATION_CTRL, which, 0, 0, 0);
}

int main(void)
{
        struct sched_param none = {0};
        pthread_t t;
        int fd, tsc, spec[2];

        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
        for (unsigned i = 0; i < 2; i++) {
                (void)prctl(PR_SET_SPECULATION_CTRL, i, PR_SPEC_DISABLE, 0, 0); /* where the kernel lets it be chosen */
                spec[i] = speculation(i);
        }
        int merges = prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) == 0;
        CHECK((fd = open("/proc/self/coredump_filter", O_WRONLY)) >= 0 && write(fd, "0x7f", 4) == 4);
        CHECK(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none) == 0);
        CHECK(pthread_create(&t, NULL, faulting, NULL) == 0);
        while (!ready)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
        CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
        CHECK(speculation(0) == spec[0] && speculation(1) == spec[1]);
        CHECK(!merges || prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == 1);
        CHECK(core_filter() == 0x7f);
        CHECK(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK));
        CHECK(prctl(PR_GET_TSC, &tsc) == 0 && tsc == PR_TSC_ENABLE);
        CHECK(pthread_join(t, NULL) == 0);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
