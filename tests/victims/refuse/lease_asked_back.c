/* A file lease that another process waits for.
 * victim: refuse=lease */
#include <fcntl.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st, fd = open("f", O_RDWR | O_CREAT, 0600);

        signal(SIGIO, SIG_IGN);
        CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                close(fd);
                _exit(open("f", O_RDONLY) >= 0 ? 7 : 1);
        }
        while (fcntl(fd, F_GETLEASE) != F_RDLCK)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(fcntl(fd, F_GETLEASE) == F_RDLCK && fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 7);
        victim_pass();
}
