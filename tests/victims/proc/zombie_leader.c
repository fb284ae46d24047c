/* A process whose main thread has ended while another thread goes on. */
#include <pthread.h>
#include <sys/wait.h>

#include "../victim.h"

static void *other(void *arg)
{
        while (!victim_gone())
                usleep(2000);
        _exit(33);
        return arg;
}

int main(void)
{
        pid_t pid = fork();
        int st;

        if (pid == 0) {
                pthread_t t;
                pthread_create(&t, NULL, other, NULL);
                pthread_exit(NULL);
        }
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 33);
        victim_pass();
}
