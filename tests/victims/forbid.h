/* Seccomp filters of a program's own that forbid one system call. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "victim.h"

/* From now on the call fails with that number, as a process without rights may ask for that has set PR_SET_NO_NEW_PRIVS. */
static inline long forbid(int nr, unsigned number, unsigned flags)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | number),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog prog = {4, code};

        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

static inline int fails_with(int nr, int number)
{
        return syscall(nr, 0, 0, 0) == -1 && errno == number;
}
