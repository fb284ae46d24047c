/* A process in a pid namespace of its own below the tree's is refused by name (or thawed whole), never thawed wrongly.
 * victim: refuse=namespace */
#include <sched.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st;
        pid_t pid = fork();

        if (pid == 0) {
                if (unshare(CLONE_NEWPID) != 0)
                        _exit(77);
                pid_t inner = fork();
                if (inner == 0) {
                        victim_wait();
                        _exit(getpid() == 1 ? 5 : 6);
                }
                waitpid(inner, &st, 0);
                _exit(WEXITSTATUS(st));
        }
        usleep(30000);
        if (waitpid(pid, &st, WNOHANG) != 0)
                victim_skip("no nested pid namespaces here");
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 5);
        victim_pass();
}
