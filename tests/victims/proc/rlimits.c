/* All resource limits, soft and hard, of a process and of its child, which has another uid. */
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../victim.h"

static struct rlimit want[RLIM_NLIMITS];

static int differs(void)
{
        struct rlimit now;

        for (int i = 0; i < RLIM_NLIMITS; i++)
                if (getrlimit((__rlimit_resource_t)i, &now) != 0 || now.rlim_cur != want[i].rlim_cur ||
                    now.rlim_max != want[i].rlim_max)
                        return i + 1;
        return 0;
}

int main(void)
{
        int st;

        for (int i = 0; i < RLIM_NLIMITS; i++) {
                CHECK(getrlimit((__rlimit_resource_t)i, &want[i]) == 0);
                if (i == RLIMIT_NOFILE)
                        want[i] = (struct rlimit){77, 99};
                else if (i == RLIMIT_FSIZE)
                        want[i] = (struct rlimit){50000000, 60000000};
                else if (i == RLIMIT_CORE || i == RLIMIT_SIGPENDING || i == RLIMIT_LOCKS)
                        want[i].rlim_cur = 10;
                else if (i == RLIMIT_STACK || i == RLIMIT_AS || i == RLIMIT_DATA)
                        want[i].rlim_cur = 700 << 20;
                CHECK(setrlimit((__rlimit_resource_t)i, &want[i]) == 0);
        }
        pid_t pid = fork();
        if (pid == 0) {
                struct rlimit small = {20, 30};
                setrlimit(RLIMIT_NOFILE, &small);
                want[RLIMIT_NOFILE] = small;
                if (setresuid(1000, 1000, 1000) == 0) /* another user's may be asked for in another way */
                        prctl(PR_SET_DUMPABLE, 1);
                victim_wait();
                _exit(differs());
        }
        victim_ready();
        victim_wait();
        int bad = differs();
        if (bad)
                victim_fail("limit %d differs", bad - 1);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
        if (WEXITSTATUS(st))
                victim_fail("limit %d of the child differs", WEXITSTATUS(st) - 1);
        victim_pass();
}
