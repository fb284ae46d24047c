/* A seccomp notification descriptor of the program's own supervisor is refused by name.
 * victim: refuse=seccomp */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog prog = {4, code};
        int st;

        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
        if (fd < 0)
                victim_skip("no seccomp notifications here");
        victim_ready();
        victim_wait();
        pid_t pid = fork();
        if (pid == 0)
                _exit((int)syscall(SYS_getpriority, 0, 0) == 17 ? 0 : 1);
        struct seccomp_notif req = {0};
        CHECK(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &req) == 0);
        struct seccomp_notif_resp resp = {.id = req.id, .val = 17};
        CHECK(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &resp) == 0);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
