#include "lockdown.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

static const struct sock_filter filter[] = {
#include <seccomp-filter.inc> /* made at build time by gen-seccomp */
};

/* Every one of these acts only on objects that the sandbox's user namespace owns. */
static const int allowed_caps[] = {
        CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,       CAP_SETGID,
        CAP_SETUID, CAP_SETPCAP,      CAP_SETFCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
};

static bool cap_allowed(int cap)
{
        for (size_t i = 0; i < ELEMENTSOF(allowed_caps); i++)
                if (allowed_caps[i] == cap)
                        return true;
        return false;
}

bool cop_lockdown_allows(uint64_t caps)
{
        for (int cap = 0; cap < 64; cap++)
                if (caps >> cap & 1 && !cap_allowed(cap))
                        return false;
        return true;
}

const void *cop_lockdown_filter(size_t *ret_size)
{
        *ret_size = sizeof(filter);
        return filter;
}

int cop_lockdown_caps(struct cop_error *err)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2];

        for (int cap = 0; cap < 64; cap++) {
                if (cap_allowed(cap))
                        continue;
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
                        if (errno == EINVAL) /* beyond the kernel's last capability */
                                break;
                        return cop_error_errno(err, errno, "dropping capability %d", cap);
                }
        }
        if (syscall(SYS_capget, &header, data) < 0)
                return cop_error_errno(err, errno, "capget");
        data[0].inheritable = data[1].inheritable = 0;
        if (syscall(SYS_capset, &header, data) < 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return cop_error_errno(err, errno, "capset");
        return 0;
}

int cop_lockdown_seccomp(struct cop_error *err)
{
        struct sock_fprog program = {.len = ELEMENTSOF(filter), .filter = (struct sock_filter *)filter};

        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
                return cop_error_errno(err, errno,
                                       "installing the system call filter (kernel without CONFIG_SECCOMP_FILTER?)");
        return 0;
}

int cop_lockdown_limits(uint64_t nofile, struct cop_error *err)
{
        /* 1, not 0: the kernel starts a core_pattern pipe handler, a root program of the host, even at 0 (fs/coredump.c);
         * 1 is the one value that it takes as "never".  The filter answers attempts to change it with a false success. */
        const struct rlimit core = {1, 1};
        struct rlimit files;

        if (setrlimit(RLIMIT_CORE, &core) < 0)
                return cop_error_errno(err, errno, "limiting core dumps");
        if (getrlimit(RLIMIT_NOFILE, &files) < 0)
                return cop_error_errno(err, errno, "limiting open files");
        if (nofile && nofile < files.rlim_max)
                files.rlim_max = nofile;
        files.rlim_cur = nofile ? files.rlim_max : MIN_OF(files.rlim_max, (rlim_t)1024);
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
                return cop_error_errno(err, errno, "limiting open files to %llu", (unsigned long long)files.rlim_cur);
        umask(022);
        return 0;
}
