/* A process whose working folder has been removed. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st, p[2];
        char c, path[512];

        CHECK(pipe(p) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (mkdir("gone", 0755) != 0 || chdir("gone") != 0 || rmdir("../gone") != 0)
                        _exit(1);
                close(p[1]);
                if (read(p[0], &c, 1) != 1)
                        _exit(2);
                _exit(getcwd(path, sizeof(path)) == NULL && errno == ENOENT ? 0 : 3);
        }
        usleep(30000);
        victim_ready();
        victim_wait();
        CHECK(write(p[1], "x", 1) == 1);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
        if (WEXITSTATUS(st))
                victim_fail("check %d", WEXITSTATUS(st));
        victim_pass();
}
