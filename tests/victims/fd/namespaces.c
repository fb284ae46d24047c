/* Open files of the tree's own namespaces: they are those that its processes are in, and can be entered. */
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        static const char *const names[] = {"net", "uts", "ipc", "mnt", "pid", "user", "time", "cgroup"};
        enum { N = sizeof(names) / sizeof(names[0]) };
        int fd[N], flags[N];
        char path[32];

        for (int i = 0; i < N; i++) {
                snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
                fd[i] = open(path, O_RDONLY | (i % 2 ? O_CLOEXEC : 0));
                CHECK(fd[i] >= 0);
                flags[i] = fcntl(fd[i], F_GETFD);
        }
        int same = open("/proc/1/ns/net", O_RDONLY), path_fd = open("/proc/self/ns/net", O_PATH);
        CHECK(same >= 0 && path_fd >= 0);
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++) {
                struct stat st, own;
                snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
                CHECK(fstat(fd[i], &st) == 0 && stat(path, &own) == 0 && st.st_ino == own.st_ino &&
                      fcntl(fd[i], F_GETFD) == flags[i]);
        }
        CHECK(setns(fd[0], CLONE_NEWNET) == 0 && setns(same, CLONE_NEWNET) == 0 && setns(path_fd, CLONE_NEWNET) < 0);
        victim_pass();
}
