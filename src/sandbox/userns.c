#include "userns.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

pid_t cop_userns_clone(int cgroup_fd, int *ret_pidfd, struct cop_error *err)
{
        int pidfd = -EBADF;
        struct clone_args args = {
                .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                         CLONE_NEWTIME | CLONE_PIDFD | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0),
                .pidfd = (uint64_t)(uintptr_t)&pidfd,
                .exit_signal = SIGCHLD,
                .cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
        };
        long pid = syscall(SYS_clone3, &args, sizeof(args));

        if (pid < 0) {
                int saved = errno;
                bool off = saved == ENOSPC || saved == EPERM || saved == EINVAL || saved == ENOSYS;
                return cop_error_set(err, saved, off ? COP_ERR_unsupported : COP_ERR_start_failed,
                                     "making the namespaces of the sandbox: %s%s", strerror(saved),
                                     saved == ENOSPC ? "; raise the limits in /proc/sys/user/max_*_namespaces"
                                     : saved == EPERM
                                             ? "; user namespaces are switched off on this host (see coppice doctor)"
                                     : off ? "; Linux 5.19 or newer with all namespaces is needed"
                                           : "");
        }
        if (pid > 0)
                *ret_pidfd = pidfd;
        return (pid_t)pid;
}

int cop_userns_map(pid_t pid, uint32_t uid_base, struct cop_error *err)
{
        static const char *const files[] = {"uid_map", "gid_map"};
        char path[64], text[64];

        snprintf(text, sizeof(text), "0 %u %u\n", uid_base, COP_SANDBOX_IDS);
        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
                int r = cop_write_kernel_file(AT_FDCWD, path, text, err);
                if (r < 0)
                        return cop_error_wrap(err, r, "mapping host ids from %u on", uid_base);
        }
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? cop_error_errno(err, errno, "opening the user namespace") : fd;
}

int cop_userns_become_root(struct cop_error *err)
{
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return cop_error_errno(err, errno, "becoming root of the user namespace");
        return 0;
}
