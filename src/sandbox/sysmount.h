/* Mount system calls of Linux 5.2-5.12 that glibc 2.36 wraps only in part. */
#pragma once

#include <linux/mount.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif

static inline int sys_open_tree(int dir_fd, const char *path, unsigned flags)
{
        return (int)syscall(SYS_open_tree, dir_fd, path, flags);
}

static inline int sys_mount_setattr(int dir_fd, const char *path, unsigned flags, struct mount_attr *attr)
{
        return (int)syscall(SYS_mount_setattr, dir_fd, path, flags, attr, sizeof(*attr));
}

static inline int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
        return (int)syscall(SYS_move_mount, from_fd, from, to_fd, to, flags);
}

static inline int sys_fsopen(const char *fs, unsigned flags)
{
        return (int)syscall(SYS_fsopen, fs, flags);
}

static inline int sys_fsconfig(int fd, unsigned command, const char *key, const void *value, int aux)
{
        return (int)syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int sys_fsmount(int fd, unsigned flags, unsigned attrs)
{
        return (int)syscall(SYS_fsmount, fd, flags, attrs);
}
