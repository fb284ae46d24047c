/* Zombies: exit status, signal with core flag, of a group and session leader, their usage and uid; wait order by pid and group. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        pid_t z[5];
        siginfo_t info;
        uid_t uid;
        int st;

        for (int i = 0; i < 5; i++) {
                z[i] = fork();
                if (z[i] == 0) {
                        struct rlimit none = {0, 0};
                        setrlimit(RLIMIT_CORE, &none);
                        if (i == 1)
                                setsid();
                        if (i == 2)
                                setpgid(0, 0);
                        if (i == 0)
                                (void)!setresuid(33, 33, 33);
                        if (i == 3)
                                kill(getpid(), SIGTERM);
                        if (i == 4)
                                kill(getpid(), SIGSEGV);
                        _exit(100 + i);
                }
        }
        for (int i = 4; i >= 0; i--)
                CHECK(waitid(P_PID, (id_t)z[i], &info, WEXITED | WNOWAIT) == 0);
        uid = info.si_uid;
        victim_ready();
        victim_wait();
        CHECK(waitid(P_PGID, (id_t)z[2], &info, WEXITED) == 0 && info.si_pid == z[2] && info.si_status == 102 &&
              info.si_code == CLD_EXITED);
        CHECK(getsid(z[1]) == z[1]);
        CHECK(waitid(P_PID, (id_t)z[3], &info, WEXITED) == 0 && info.si_code == CLD_KILLED &&
              info.si_status == SIGTERM);
        CHECK(waitpid(z[4], &st, 0) == z[4] && WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
        CHECK(waitpid(z[1], &st, 0) == z[1] && WEXITSTATUS(st) == 101);
        CHECK(waitid(P_PID, (id_t)z[0], &info, WEXITED | WNOWAIT) == 0 && info.si_uid == uid);
        CHECK(wait(&st) == z[0] && WEXITSTATUS(st) == 100);
        CHECK(wait(&st) == -1 && errno == ECHILD);
        victim_pass();
}
