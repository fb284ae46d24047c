/* Children that were cloned with another exit signal, or none (__WCLONE), keep it. */
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile sig_atomic_t usr1, chld;

static void on(int sig)
{
        if (sig == SIGUSR1)
                usr1++;
        else
                chld++;
}

int main(void)
{
        int st;

        signal(SIGUSR1, on);
        signal(SIGCHLD, on);
        pid_t a = (pid_t)syscall(SYS_clone, SIGUSR1, 0, 0, 0, 0);
        if (a == 0) {
                victim_wait();
                _exit(5);
        }
        pid_t b = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
        if (b == 0) {
                victim_wait();
                _exit(6);
        }
        victim_ready();
        victim_wait();
        CHECK(waitpid(a, &st, __WALL) == a && WEXITSTATUS(st) == 5);
        CHECK(waitpid(b, &st, __WCLONE) == b && WEXITSTATUS(st) == 6);
        CHECK(usr1 == 1 && chld == 0);
        victim_pass();
}
