/* A process in a changed root, with its own working folder and a file open below it. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st, p[2];
        char c, path[512];

        (void)mkdir("jail", 0755);
        (void)mkdir("jail/in", 0755);
        CHECK(pipe(p) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (chroot("jail") != 0 || chdir("/in") != 0)
                        _exit(1);
                int fd = open("/in/file", O_RDWR | O_CREAT, 0600);
                if (fd < 0 || write(fd, "abc", 3) != 3)
                        _exit(2);
                close(p[1]);
                if (read(p[0], &c, 1) != 1)
                        _exit(3);
                if (!getcwd(path, sizeof(path)) || strcmp(path, "/in") != 0 || access("/in/file", F_OK) != 0 ||
                    access("/proc", F_OK) == 0)
                        _exit(4);
                _exit(lseek(fd, 0, SEEK_CUR) == 3 ? 0 : 5);
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
