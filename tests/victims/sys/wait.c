/* wait4, waitid and waitpid for a group block on over the thaw and get the right child. */
#include "../blocked.h"

static pid_t kid[3];

static long by_wait4(void)
{
        int st;
        return wait4(kid[0], &st, 0, NULL) == kid[0] ? WEXITSTATUS(st) : -1;
}
static long by_waitid(void)
{
        siginfo_t info;
        return waitid(P_PID, (id_t)kid[1], &info, WEXITED) == 0 && info.si_pid == kid[1] ? info.si_status : -1;
}
static long by_group(void)
{
        int st;
        return waitpid(-kid[2], &st, 0) == kid[2] ? WEXITSTATUS(st) : -1;
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "wait4", .nr = SYS_wait4, .run = by_wait4, .want = 20},
                {.name = "waitid", .nr = SYS_waitid, .run = by_waitid, .want = 21},
                {.name = "waitpid of a group", .nr = SYS_wait4, .run = by_group, .want = 22},
        };

        for (int i = 0; i < 3; i++) {
                kid[i] = fork();
                if (kid[i] == 0) {
                        victim_wait();
                        _exit(20 + i);
                }
                setpgid(kid[i], kid[i]);
        }
        block_all(rows, ROWS(rows));
        victim_ready();
        join_all(rows, ROWS(rows));
        victim_pass();
}
