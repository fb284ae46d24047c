/* A child that is to have a signal at the end of the thread that forked it, of a process whose first thread has ended: in a thaw that
 * thread would be another one.
 *
 * victim: refuse=is to have a signal at the end of a thread
 */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

static void *other(void *arg)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
                        _exit(1);
                while (!victim_gone())
                        usleep(2000);
                _exit(5);
        }
        _exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        return arg;
}

int main(void)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                pthread_t t;
                pthread_create(&t, NULL, other, NULL);
                pthread_exit(NULL);
        }
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
        victim_pass();
}
