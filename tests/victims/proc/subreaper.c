/* A child subreaper: orphans of the time before and after the thaw come to it; its flag is inherited by none. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int st, flag = 0;

        CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        pid_t mid = fork();
        if (mid == 0) {
                if (fork() == 0) { /* an orphan already before the freeze */
                        shared[0] = getpid();
                        victim_wait();
                        _exit(getppid() == shared[2] ? 41 : 1);
                }
                _exit(0);
        }
        shared[2] = getpid();
        CHECK(waitpid(mid, &st, 0) == mid);
        pid_t late = fork();
        if (late == 0) {
                if (fork() == 0) { /* becomes one after it */
                        shared[1] = getpid();
                        pid_t parent = getppid();
                        while (getppid() == parent)
                                usleep(1000);
                        _exit(getppid() == shared[2] ? 42 : 1);
                }
                victim_wait();
                _exit(0);
        }
        while (!shared[0] || !shared[1])
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(prctl(PR_GET_CHILD_SUBREAPER, &flag) == 0 && flag == 1);
        CHECK(waitpid(shared[0], &st, 0) == shared[0] && WEXITSTATUS(st) == 41);
        CHECK(waitpid(late, &st, 0) == late && st == 0);
        CHECK(waitpid(shared[1], &st, 0) == shared[1] && WEXITSTATUS(st) == 42);
        victim_pass();
}
