/* CLONE_FILES between processes, not threads: refused by name, shared on.
 * victim: refuse=shares */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st, fd;
        volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | CLONE_FS | SIGCHLD, 0, 0, 0, 0);
        CHECK(pid >= 0);
        if (pid == 0) {
                victim_wait();
                shared[0] = open("/dev/null", O_RDONLY);
                umask(0123);
                shared[1] = 1;
                while (!shared[2])
                        usleep(1000);
                _exit(0);
        }
        victim_ready();
        victim_wait();
        while (!shared[1])
                usleep(1000);
        fd = shared[0];
        CHECK(fcntl(fd, F_GETFD) >= 0);
        CHECK(umask(0) == 0123);
        shared[2] = 1;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
