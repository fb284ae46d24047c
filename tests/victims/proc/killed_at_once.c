/* Children that are killed, and waited for, by a parent that runs a moment earlier than they after a stop. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

#define CHILDREN 60

static pid_t make(void)
{
        pid_t pid = fork();

        if (pid == 0)
                for (;;)
                        pause();
        return pid;
}

int main(void)
{
        pid_t pids[CHILDREN];
        unsigned long rounds = 0;
        int st;

        for (int i = 0; i < CHILDREN; i++)
                CHECK((pids[i] = make()) > 0);
        victim_ready();
        for (int i = 0; !victim_gone(); i = (i + 1) % CHILDREN, rounds++) {
                int last = CHILDREN - 1 - i;
                CHECK(kill(pids[last], SIGKILL) == 0 && waitpid(pids[last], &st, 0) == pids[last] && WIFSIGNALED(st) &&
                      WTERMSIG(st) == SIGKILL);
                CHECK((pids[last] = make()) > 0);
        }
        for (int i = 0; i < CHILDREN; i++)
                CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], &st, 0) == pids[i]);
        CHECK(rounds > 0);
        victim_pass();
}
