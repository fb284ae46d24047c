/* What stands for a process that has ended and been reaped: its folder in /proc, files and a task in it, pidfds, those of one process with
 * one inode, in all who have them, and with its status. */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

/* Those of one process are told by their inode (since 6.9) and its status (since 6.15). */
struct ended {
        ino_t ino;
        unsigned known;
        int status;
};

static struct ended ended_of(int pidfd)
{
        struct {
                uint64_t mask, cgroup;
                uint32_t ids[11];
                int32_t status;
        } info = {.mask = 8};
        struct stat st;

        CHECK(fstat(pidfd, &st) == 0);
        if (ioctl(pidfd, _IOWR(0xFF, 11, info), &info) != 0 || !(info.mask & 8))
                info.status = -1;
        return (struct ended){st.st_ino, info.status >= 0, info.status};
}

static void end_with(int status, int pidfd[2])
{
        pid_t pid = fork();

        if (pid == 0) {
                if (status)
                        _exit(status);
                for (;;)
                        pause();
        }
        for (int i = 0; i < 2; i++)
                CHECK((pidfd[i] = (int)syscall(SYS_pidfd_open, pid, 0)) >= 0);
        if (!status)
                kill(pid, SIGUSR2);
        CHECK(waitpid(pid, NULL, 0) == pid);
}

static void check_ended(int gone[2][2], int inherited, const struct ended *was)
{
        struct ended now[2] = {ended_of(gone[0][0]), ended_of(gone[1][0])};

        for (int i = 0; i < 2; i++) {
                CHECK(ended_of(gone[i][1]).ino == now[i].ino);
                CHECK(now[i].known == was[i].known && now[i].status == was[i].status);
        }
        CHECK((now[0].ino == now[1].ino) == (was[0].ino == was[1].ino));
        CHECK(ended_of(inherited).ino == now[1].ino);
}

int main(void)
{
        char buf[64];
        int gone[2][2], st;
        end_with(7, gone[0]);
        end_with(0, gone[1]);
        int inherited = dup(gone[1][0]);
        struct ended was[2] = {ended_of(gone[0][0]), ended_of(gone[1][0])};
        pid_t child = fork();
        if (child == 0) {
                victim_wait();
                check_ended(gone, inherited, was);
                _exit(0);
        }
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
        check_ended(gone, inherited, was);
        CHECK(waitpid(child, &st, 0) == child && st == 0);
        victim_pass();
}
