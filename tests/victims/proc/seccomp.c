/* A seccomp filter of the program's own is kept, or freezing is refused by name: never thawed without it.
 * victim: owner_refuse=seccomp filter */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog prog = {4, code};

        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
        CHECK(syscall(SYS_getpriority, 0, 0) == -1 && errno == 77);
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_getpriority, 0, 0) == -1 && errno == 77);
        CHECK(prctl(PR_GET_SECCOMP) == 2);
        victim_pass();
}
