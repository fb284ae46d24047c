/* Processes that are stopped and continued all the time: no stop and no other signal is lost when the freeze comes in between. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

#define PAIRS 3

static volatile struct shared {
        unsigned long rounds[PAIRS], steps[PAIRS], signals[PAIRS];
        int go;
} * shared;

static volatile int self;

static void count(int sig)
{
        shared->signals[self] += sig == SIGUSR1;
}

static void step(int index)
{
        self = index;
        signal(SIGUSR1, count);
        for (;;) {
                shared->steps[index]++;
                usleep(100);
        }
}

/* A stop that is lost is never told. */
static void drive(int index, pid_t pid)
{
        int status;

        for (; !shared->go; shared->rounds[index]++) {
                unsigned long steps = shared->steps[index], signals = shared->signals[index];
                if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
                        _exit(1);
                kill(pid, SIGUSR1);
                kill(pid, SIGCONT);
                while (shared->signals[index] == signals || shared->steps[index] < steps + 3)
                        usleep(100);
                if (shared->signals[index] != signals + 1)
                        _exit(2);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        _exit(0);
}

int main(void)
{
        unsigned long before[PAIRS];
        pid_t pids[PAIRS];
        int status;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        for (int i = 0; i < PAIRS; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        pid_t pid = fork();
                        if (pid == 0)
                                step(i);
                        while (shared->steps[i] == 0)
                                usleep(500);
                        drive(i, pid);
                }
        }
        for (int i = 0; i < PAIRS; i++)
                while (shared->rounds[i] < 3)
                        usleep(500);
        victim_ready();
        victim_wait();
        for (int i = 0; i < PAIRS; i++)
                before[i] = shared->rounds[i];
        for (int i = 0; i < PAIRS; i++)
                for (int k = 0; k < 5000 && shared->rounds[i] < before[i] + 3; k++)
                        usleep(1000);
        for (int i = 0; i < PAIRS; i++)
                if (shared->rounds[i] < before[i] + 3)
                        victim_fail("pair %d does not go on: %lu rounds, %lu before", i, shared->rounds[i], before[i]);
        shared->go = 1;
        for (int i = 0; i < PAIRS; i++)
                CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
        victim_pass();
}
