/* SIGCHLD of children that end after the thaw: one per child with siginfo, SA_NOCLDWAIT leaves no zombie. */
#include <sys/wait.h>

#include "../victim.h"

static volatile int status[64], count;
static volatile pid_t from[64];

static void on(int sig, siginfo_t *info, void *u)
{
        if (count < 64) {
                from[count] = info->si_pid;
                status[count] = info->si_status;
        }
        count++;
}

int main(void)
{
        struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP},
                         ign = {.sa_handler = SIG_IGN};
        int st;

        pid_t auto_reaper = fork();
        if (auto_reaper == 0) {
                sigaction(SIGCHLD, &ign, NULL);
                if (fork() == 0) {
                        victim_wait();
                        _exit(0);
                }
                _exit(wait(&st) == -1 && errno == ECHILD ? 8 : 9);
        }
        CHECK(sigaction(SIGCHLD, &sa, NULL) == 0);
        pid_t kid = fork();
        if (kid == 0) {
                victim_wait();
                usleep(200000);
                _exit(77);
        }
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(auto_reaper, &st, 0) == auto_reaper && WEXITSTATUS(st) == 8);
        CHECK(waitpid(kid, &st, 0) == kid && WEXITSTATUS(st) == 77);
        CHECK(count == 2);
        for (int i = 0; i < 2; i++)
                CHECK(from[i] == kid ? status[i] == 77 : from[i] == auto_reaper && status[i] == 8);
        victim_pass();
}
