/* A process that may make a handful of calls and is killed for any other: the freeze and the thaw make none in its name.
 * victim: owner_refuse=seccomp filter */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(void)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                ALLOW(access),
                ALLOW(clock_nanosleep),
                ALLOW(restart_syscall),
                ALLOW(exit_group),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) : -1;
}

static void *confined(void *arg)
{
        if (confine() != 0)
                _exit(1);
        victim_wait();
        usleep(20000);
        _exit(33);
        return arg;
}

static pid_t start(int thread)
{
        pid_t pid = fork();
        pthread_t t;

        if (pid != 0)
                return pid;
        if (!thread)
                confined(NULL);
        pthread_create(&t, NULL, confined, NULL);
        for (;;)
                pause();
}

int main(void)
{
        int st;
        pid_t all = start(0), one = start(1);

        CHECK(all > 0 && one > 0);
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(all, &st, 0) == all);
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 33);
        CHECK(waitpid(one, &st, 0) == one);
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 33);
        victim_pass();
}
