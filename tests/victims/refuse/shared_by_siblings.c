/* Descriptors shared by two siblings, but not with their parent (CLONE_FILES and CLONE_PARENT): there is nobody who could clone both.
 * victim: refuse=shares descriptors */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        volatile int *opened = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                pid_t sibling = (pid_t)syscall(SYS_clone, CLONE_FILES | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
                victim_wait();
                if (sibling == 0) {
                        *opened = open("/dev/null", O_RDONLY);
                        while (*opened > 0)
                                usleep(1000);
                        _exit(0);
                }
                for (int i = 0; i < 5000 && *opened <= 0; i++)
                        usleep(1000);
                status = fcntl(*opened, F_GETFD) >= 0 ? 0 : 1;
                *opened = -1;
                _exit(status);
        }
        usleep(20000);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 2; i++)
                CHECK(wait(&status) > 0 && status == 0);
        victim_pass();
}
