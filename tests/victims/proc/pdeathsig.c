/* The parent-death signal is set still, and comes when the parent dies after the thaw. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile int *shared;

static void on(int sig)
{
        shared[1] = sig;
}

int main(void)
{
        int st;

        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t parent = fork();
        if (parent == 0) {
                if (fork() == 0) {
                        signal(SIGUSR2, on);
                        prctl(PR_SET_PDEATHSIG, SIGUSR2);
                        shared[0] = getpid();
                        for (int i = 0; i < 10000 && !shared[1]; i++)
                                usleep(2000);
                        int sig = 0;
                        prctl(PR_GET_PDEATHSIG, &sig);
                        shared[2] = sig;
                        _exit(0);
                }
                victim_wait();
                _exit(0);
        }
        while (!shared[0])
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(parent, &st, 0) == parent);
        for (int i = 0; i < 3000 && !shared[2]; i++)
                usleep(1000);
        CHECK(shared[1] == SIGUSR2 && shared[2] == SIGUSR2);
        victim_pass();
}
