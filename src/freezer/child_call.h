/* A call made by a short-lived child, for what a process is known by to the kernel: its pid, user or pid namespace.  The child
 * shares memory and descriptors with the caller, which waits meanwhile (as after vfork), but has a stack, a folder and
 * credentials of its own. */
#pragma once

#include <sys/types.h>

/* With this pid, when `pid` is not 0.  Returns what the call does (0 or -errno), or why there was none: -EEXIST when the pid is
 * taken.  The call may make descriptors and write memory; it must return. */
int cop_child_call(pid_t pid, int (*call)(void *argument), void *argument);
