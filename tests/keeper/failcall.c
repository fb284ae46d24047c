/* failcall CALL ERRNO PROGRAM ARG…: runs a program in which one system call always fails with ERRNO (a number). */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

        if (argc < 4 || !ctx) {
                fprintf(stderr, "usage: failcall CALL ERRNO PROGRAM ARG…\n");
                return 2;
        }
        int number = seccomp_syscall_resolve_name(argv[1]), r;
        if (number == __NR_SCMP_ERROR) {
                fprintf(stderr, "failcall: no system call %s\n", argv[1]);
                return 2;
        }
        if ((r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0)) < 0 ||
            (r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)atoi(argv[2])), number, 0)) < 0 ||
            (r = seccomp_load(ctx)) < 0) {
                fprintf(stderr, "failcall: %s\n", strerror(-r));
                return 2;
        }
        seccomp_release(ctx);
        execv(argv[3], argv + 3);
        fprintf(stderr, "failcall: %s: %s\n", argv[3], strerror(errno));
        return 2;
}
