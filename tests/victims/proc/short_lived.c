/* Processes and threads that come and go all the time, and are waited for at once: some end between being found and being stopped. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

#define MAKERS 2

static volatile struct shared {
        unsigned long rounds[MAKERS];
        int failed[MAKERS];
        int go;
} * shared;

static void *end_at_once(void *arg)
{
        return arg;
}

static void *sleep_on(void *arg)
{
        pause();
        return arg;
}

/* One process, one thread, one process that is killed and one that ends with its threads. */
static int one_round(void)
{
        pthread_t thread;
        int status;
        void *result;

        pid_t pid = fork();
        if (pid == 0)
                _exit(7);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
                return -1;
        if (pthread_create(&thread, NULL, end_at_once, &status) != 0 || pthread_join(thread, &result) != 0 ||
            result != &status)
                return -1;
        pid = fork();
        if (pid == 0) {
                pthread_create(&thread, NULL, sleep_on, NULL);
                pause();
        }
        usleep(100);
        if (pid < 0 || kill(pid, SIGKILL) != 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
                return -1;
        pid = fork();
        if (pid == 0) {
                for (int i = 0; i < 3; i++)
                        pthread_create(&thread, NULL, end_at_once, NULL);
                _exit(8);
        }
        return pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 8 ? -1 : 0;
}

int main(void)
{
        unsigned long before[MAKERS];
        pid_t pids[MAKERS];
        int status;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        for (int i = 0; i < MAKERS; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        for (; !shared->go; shared->rounds[i]++)
                                if (one_round() < 0) {
                                        shared->failed[i] = 1;
                                        break;
                                }
                        _exit(0);
                }
        }
        for (int i = 0; i < MAKERS; i++)
                while (shared->rounds[i] < 5)
                        usleep(500);
        victim_ready();
        victim_wait();
        for (int i = 0; i < MAKERS; i++)
                before[i] = shared->rounds[i];
        for (int i = 0; i < MAKERS; i++)
                for (int k = 0; k < 5000 && shared->rounds[i] < before[i] + 5 && !shared->failed[i]; k++)
                        usleep(1000);
        shared->go = 1;
        for (int i = 0; i < MAKERS; i++) {
                CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
                if (shared->failed[i] || shared->rounds[i] < before[i] + 5)
                        victim_fail("maker %d did not go on: %lu rounds, %lu before", i, shared->rounds[i], before[i]);
        }
        victim_pass();
}
