/* Two orphans of one living leader, of which one was adopted before the other one's adopter, below its own, was a subreaper: whoever makes
 * them again would have to do it at two times.
 * victim: refuse=was adopted past another */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

static struct shared {
        volatile pid_t parent[2];
        volatile int turn;
} * shared;

static void orphan(int index)
{
        pid_t middle = fork();

        if (middle == 0) {
                pid_t self = getpid();
                if (fork() == 0) {
                        while (getppid() == self)
                                usleep(500);
                        shared->parent[index] = getppid();
                        victim_wait();
                        _exit(getppid() == shared->parent[index] ? 0 : 1);
                }
                _exit(0);
        }
        waitpid(middle, NULL, 0);
}

int main(void)
{
        int status = 0;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        pid_t reaper = fork();
        if (reaper == 0) {
                if (fork() == 0) {
                        if (fork() != 0) {
                                victim_wait();
                                while (wait(&status) > 0)
                                        ;
                                _exit(status ? 1 : 0);
                        }
                        setsid();
                        orphan(0);
                        shared->turn = 1;
                        while (shared->turn != 2)
                                usleep(500);
                        orphan(1);
                        victim_wait();
                        _exit(0);
                }
                while (shared->turn != 1)
                        usleep(500);
                prctl(PR_SET_CHILD_SUBREAPER, 1);
                shared->turn = 2;
                victim_wait();
                while (status == 0 && wait(&status) > 0)
                        ;
                _exit(status ? 1 : 0);
        }
        while (!shared->parent[0] || !shared->parent[1])
                usleep(500);
        CHECK(shared->parent[0] == getpid() && shared->parent[1] == reaper);
        victim_ready();
        victim_wait();
        while (wait(&status) > 0)
                CHECK(status == 0);
        victim_pass();
}
