#include "freezer/child_call.h"

#include <errno.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/tracee.h"

struct order {
        int (*call)(void *argument);
        void *argument;
        int result;
};

static int carry_out(void *pointer)
{
        struct order *o = pointer;

        o->result = o->call(o->argument);
        return 0;
}

/* The pid of the child, or -errno. */
static long clone_and_call(struct clone_args *args, int (*call)(void *), void *argument)
{
        register int (*call_register)(void *) __asm__("r12") = call;
        register void *argument_register __asm__("r13") = argument;
        long ret;

        __asm__ volatile("syscall\n\t"
                         "test %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "xor %%ebp, %%ebp\n\t"
                         "mov %%r13, %%rdi\n\t"
                         "call *%%r12\n\t"
                         "mov %%eax, %%edi\n\t"
                         "mov %[exit], %%eax\n\t"
                         "syscall\n\t"
                         "hlt\n"
                         "1:"
                         : "=a"(ret)
                         : "0"((long)SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(call_register),
                           "r"(argument_register), [exit] "i"(SYS_exit)
                         : "rcx", "r11", "cc", "memory");
        return ret;
}

static long start(pid_t pid, char *stack, uint64_t flags, int exit_signal, int (*call)(void *), void *argument)
{
        struct clone_args args = {
                .flags = CLONE_VM | flags,
                .exit_signal = (uint64_t)exit_signal,
                .stack = (uintptr_t)stack,
                .stack_size = COP_CHILD_STACK,
                .set_tid = pid ? (uintptr_t)&pid : 0,
                .set_tid_size = pid != 0,
        };

        return clone_and_call(&args, call, argument);
}

pid_t cop_child_start(pid_t pid, char *stack, int (*call)(void *argument), void *argument)
{
        return (pid_t)start(pid, stack, CLONE_FILES, 0, call, argument);
}

pid_t cop_child_start_apart(char *stack, int (*call)(void *argument), void *argument)
{
        return (pid_t)start(0, stack, 0, SIGCHLD, call, argument);
}

void cop_child_reap(pid_t pid)
{
        int status;

        (void)cop_wait_task(pid, &status);
}

int cop_child_call(pid_t pid, int (*call)(void *argument), void *argument)
{
        struct order order = {.call = call, .argument = argument, .result = -EIO};
        _cleanup_free_ char *stack = aligned_alloc(4096, COP_CHILD_STACK);

        if (!stack)
                return -ENOMEM;
        long child = start(pid, stack, CLONE_FILES | CLONE_VFORK, 0, carry_out, &order);
        if (child < 0)
                return (int)child;
        cop_child_reap((pid_t)child);
        return order.result;
}

/* Not through libc, which would tell threads that are not the child's own. */
int cop_child_identity(uid_t uid, gid_t gid)
{
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || syscall(SYS_setresgid, gid, gid, gid) < 0 ||
            syscall(SYS_setresuid, uid, uid, uid) < 0)
                return -errno;
        return 0;
}
