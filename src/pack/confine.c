/* The packer reads and the unpacker writes what a sandbox, or a stranger, has made.  Both know the few descriptors they need, and after
 * that work beneath one folder: it becomes their root, so that no path leads anywhere else whatever it says; of the capabilities those
 * are kept that owners and modes of files need; and a filter leaves the system calls of the work: no sockets, no signals to others,
 * no programs, no new descriptors of processes.
 */
#include "pack/confine.h"

#include <linux/capability.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#define DATA_MAX (2ULL << 30) /* of memory: meta.img may have 1 GiB, which is mapped */

static const int reader_caps[] = {CAP_DAC_READ_SEARCH, -1};
/* Without CAP_MKNOD: a whiteout needs none. */
static const int writer_caps[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETFCAP, -1};

static const int calls[] = {
        SCMP_SYS(read),         SCMP_SYS(pread64),    SCMP_SYS(write),         SCMP_SYS(pwrite64),
        SCMP_SYS(readv),        SCMP_SYS(writev),     SCMP_SYS(close),         SCMP_SYS(openat),
        SCMP_SYS(openat2),      SCMP_SYS(fstat),      SCMP_SYS(newfstatat),    SCMP_SYS(statx),
        SCMP_SYS(lseek),        SCMP_SYS(getdents64), SCMP_SYS(readlinkat),    SCMP_SYS(fcntl),
        SCMP_SYS(flistxattr),   SCMP_SYS(fgetxattr),  SCMP_SYS(fsetxattr),     SCMP_SYS(mkdirat),
        SCMP_SYS(mknodat),      SCMP_SYS(linkat),     SCMP_SYS(symlinkat),     SCMP_SYS(fchown),
        SCMP_SYS(fchownat),     SCMP_SYS(fchmod),     SCMP_SYS(fchmodat),      SCMP_SYS(utimensat),
        SCMP_SYS(ftruncate),    SCMP_SYS(fsync),      SCMP_SYS(syncfs),        SCMP_SYS(fstatfs),
        SCMP_SYS(mmap),         SCMP_SYS(munmap),     SCMP_SYS(mremap),        SCMP_SYS(mprotect),
        SCMP_SYS(madvise),      SCMP_SYS(brk),        SCMP_SYS(futex),         SCMP_SYS(getrandom),
        SCMP_SYS(memfd_create), SCMP_SYS(uname),      SCMP_SYS(clock_gettime), SCMP_SYS(exit_group),
        SCMP_SYS(rt_sigreturn), SCMP_SYS(umask),      SCMP_SYS(gettimeofday),  SCMP_SYS(restart_syscall),
};

static int keep_caps(const int *list, struct cop_error *err)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2] = {0};

        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
                        return cop_error_errno(err, errno, "dropping capability %d", cap);
        for (; *list >= 0; list++)
                data[*list / 32].permitted |= 1u << (*list % 32);
        data[0].effective = data[0].permitted;
        data[1].effective = data[1].permitted;
        if (syscall(SYS_capset, &header, data) < 0)
                return cop_error_errno(err, errno, "capset");
        return 0;
}

static int filter_calls(struct cop_error *err)
{
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = filter ? 0 : -ENOMEM;

        for (size_t i = 0; r == 0 && i < ELEMENTSOF(calls); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
        if (r == 0)
                r = seccomp_load(filter); /* sets no_new_privs */
        seccomp_release(filter);
        return r < 0 ? cop_error_errno(err, -r, "installing the system call filter") : 0;
}

int cop_confine(int root_fd, bool writes, struct cop_error *err)
{
        const struct rlimit data = {DATA_MAX, DATA_MAX}, core = {1, 1}; /* 1: never, also not through a pipe */

        if (fchdir(root_fd) < 0 || chroot(".") < 0)
                return cop_error_set(err, errno, COP_ERR_unsupported,
                                     "coppice-pack cannot confine itself to its folder: %s; it has to be root",
                                     strerror(errno));
        if (setrlimit(RLIMIT_DATA, &data) < 0 || setrlimit(RLIMIT_CORE, &core) < 0)
                return cop_error_errno(err, errno, "setrlimit");
        int r = keep_caps(writes ? writer_caps : reader_caps, err);
        return r < 0 ? r : filter_calls(err);
}
