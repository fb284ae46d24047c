/* A call made by a short-lived child, for what a process is known by to the kernel: its pid, user or pid namespace.  The child
 * shares memory and descriptors with the caller, which waits meanwhile (as after vfork), but has a stack, a folder and
 * credentials of its own. */
#pragma once

#include <sys/types.h>

/* With this pid, when `pid` is not 0.  Returns what the call does (0 or -errno), or why there was none: -EEXIST when the pid is
 * taken.  The call may make descriptors and write memory; it must return. */
int cop_child_call(pid_t pid, int (*call)(void *argument), void *argument);

/* The same without waiting: the call runs beside the caller, who must not touch what it touches (libc's thread-local data among it),
 * and must end it and reap it.  The stack, aligned to 16, is the caller's until then.  The child's pid, or -errno. */
#define COP_CHILD_STACK (256UL << 10) /* bytes */
pid_t cop_child_start(pid_t pid, char *stack, int (*call)(void *argument), void *argument);
void cop_child_reap(pid_t pid);
/* The same, with descriptors of its own, those of the caller; its end is told by SIGCHLD, as is that of what it clones with CLONE_PARENT. */
pid_t cop_child_start_apart(char *stack, int (*call)(void *argument), void *argument);

/* In such a child: goes on as this user and group, with all its rights.  0 or -errno.  It clears PR_SET_DUMPABLE of the memory that is
 * shared: the caller, who is left without /proc/self else, is to set it again. */
int cop_child_identity(uid_t uid, gid_t gid);

/* A system call that leaves errno alone. */
static inline long cop_raw_syscall4(long nr, long a, long b, long c, long d)
{
        long ret;
        register long r10 __asm__("r10") = d;

        __asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
        return ret;
}
