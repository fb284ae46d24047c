/* 3,000 descriptors of all kinds in one process, at their numbers, and 40 of them in each of 10 children. */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../victim.h"

#define N 3000

int main(void)
{
        struct rlimit l = {4096, 4096};
        int fd[N], p[2], st;
        uint64_t v;

        setrlimit(RLIMIT_NOFILE, &l);
        CHECK(pipe(p) == 0);
        for (int i = 0; i < N; i++) {
                fd[i] = i % 3 == 0   ? eventfd((unsigned)i, EFD_NONBLOCK)
                        : i % 3 == 1 ? open("/dev/null", O_RDWR)
                                     : dup(p[1]);
                CHECK(fd[i] >= 0);
        }
        pid_t kid[10];
        for (int k = 0; k < 10; k++) {
                kid[k] = fork();
                if (kid[k] == 0) {
                        close_range((unsigned)fd[40], ~0U, 0);
                        victim_wait();
                        for (int i = 0; i < 40; i++)
                                if (fcntl(fd[i], F_GETFD) != 0)
                                        _exit(1);
                        _exit(fcntl(fd[40], F_GETFD) == -1 ? 0 : 2);
                }
        }
        victim_ready();
        victim_wait();
        for (int k = 0; k < 10; k++)
                CHECK(waitpid(kid[k], &st, 0) == kid[k] && st == 0);
        for (int i = 3; i < N; i++)
                if (i % 3 == 0)
                        CHECK(read(fd[i], &v, 8) == 8 && v == (uint64_t)i);
                else
                        CHECK(write(fd[i], "x", 1) == 1);
        victim_pass();
}
