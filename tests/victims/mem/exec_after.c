/* A process that executes another program after the thaw, from fork, vfork and posix_spawn, without anything left over. */
#include <spawn.h>

#include "../mem.h"

extern char **environ;

int main(void)
{
        char *a = ANON(512 * PAGE, RW);
        int st;
        pid_t pid;

        fill(a, 512 * PAGE, 1);
        victim_ready();
        victim_wait();
        char *const argv[] = {"sh", "-c",
                              "x=0; for i in 1 2 3 4 5 6 7 8 9 10; do x=$((x + i)); done; [ $(echo $x | cat) = 55 ]",
                              NULL};
        for (int i = 0; i < 10; i++) {
                pid = i % 2 ? fork() : vfork();
                if (pid == 0) {
                        execve("/bin/sh", argv, environ);
                        _exit(127);
                }
                CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        }
        CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        CHECK_FILLED(a, 512 * PAGE, 1);
        victim_pass();
}
