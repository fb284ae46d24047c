/* A storm of signals between processes and threads while the freeze comes: none is lost, none comes twice. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile long *count; /* 0: got, 1: sum of the values, 2: the sender's count, 3: its sum */

static void on(int sig, siginfo_t *info, void *u)
{
        count[0]++;
        count[1] += info->si_int;
}

int main(void)
{
        struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART};
        int st;

        count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(sigaction(SIGRTMIN + 2, &sa, NULL) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                for (int i = 1; !victim_gone(); i++) {
                        if (sigqueue(getppid(), SIGRTMIN + 2, (union sigval){.sival_int = i}) == 0) {
                                count[2]++;
                                count[3] += i;
                        }
                        if (i % 20 == 0)
                                usleep(1000);
                }
                _exit(0);
        }
        usleep(20000);
        victim_ready();
        while (waitpid(pid, &st, 0) < 0)
                CHECK(errno == EINTR);
        usleep(50000);
        if (count[0] != count[2] || count[1] != count[3])
                victim_fail("%ld of %ld signals came, sum %ld of %ld", count[0], count[2], count[1], count[3]);
        victim_pass();
}
