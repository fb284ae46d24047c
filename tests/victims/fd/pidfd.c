/* pidfds of a child, a grandchild, oneself, a zombie: signals go through them, poll tells the end. */
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static int pidfd(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

int main(void)
{
        volatile pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        siginfo_t info;

        pid_t kid = fork();
        if (kid == 0) {
                pid_t g = fork();
                if (g == 0)
                        for (;;)
                                pause();
                shared[0] = g;
                waitpid(g, NULL, 0);
                _exit(12);
        }
        pid_t dead = fork();
        if (dead == 0)
                _exit(13);
        CHECK(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT) == 0);
        while (!shared[0])
                usleep(500);
        int k = pidfd(kid), g = pidfd(shared[0]), me = pidfd(getpid()), d = pidfd(dead);
        CHECK(k >= 0 && g >= 0 && me >= 0);
        victim_ready();
        victim_wait();
        struct pollfd p[] = {{k, POLLIN, 0}, {me, POLLIN, 0}};
        CHECK(poll(p, 2, 0) == 0);
        CHECK(syscall(SYS_pidfd_send_signal, me, 0, NULL, 0) == 0);
        CHECK(syscall(SYS_pidfd_send_signal, g, SIGKILL, NULL, 0) == 0);
        CHECK(poll(p, 1, 5000) == 1);
        CHECK(waitid((idtype_t)P_PIDFD, (id_t)k, &info, WEXITED) == 0 && info.si_pid == kid && info.si_status == 12);
        CHECK(d < 0 || (waitid((idtype_t)P_PIDFD, (id_t)d, &info, WEXITED) == 0 && info.si_status == 13));
        victim_pass();
}
