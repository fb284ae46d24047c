/* What stands for a process that has ended and been reaped: its folder in /proc, files and a task in it, a pidfd. */
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static int open_of(pid_t pid, const char *what)
{
        char path[64];

        snprintf(path, sizeof(path), what, pid, pid);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        return fd;
}

int main(void)
{
        char buf[64];
        pid_t pid = fork();

        if (pid == 0)
                for (;;)
                        pause();
        int folder = open_of(pid, "/proc/%d"), status = open_of(pid, "/proc/%d/status"),
            task = open_of(pid, "/proc/%d/task/%d/stat"), pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        int living = open_of(getpid(), "/proc/%d");
        CHECK(pidfd >= 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        victim_ready();
        victim_wait();
        struct pollfd p = {pidfd, POLLIN, 0};
        CHECK(read(status, buf, sizeof(buf)) == -1 && errno == ESRCH);
        CHECK(read(task, buf, sizeof(buf)) == -1 && errno == ESRCH);
        CHECK(openat(folder, "stat", O_RDONLY) == -1);
        CHECK(poll(&p, 1, 0) == 1 && syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == -1 && errno == ESRCH);
        CHECK(openat(living, "stat", O_RDONLY) >= 0);
        victim_pass();
}
