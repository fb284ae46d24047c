/* A parent in vfork, waiting for a child that has not executed yet: refused for that moment, by name.
 * victim: refuse=vfork
 * victim: refusals=1
 * victim: timeout=30 */
#include "../blocked.h"

static int parent(void)
{
        pid_t pid = vfork();
        int st;

        if (pid == 0) {
                while (access("go", F_OK) != 0)
                        usleep(2000);
                _exit(9);
        }
        return waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 9 ? 3 : 1;
}

int main(void)
{
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
                _exit(parent());
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(status_of(pid) == 3);
        victim_pass();
}
