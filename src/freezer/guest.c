#include "freezer/guest.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/tracee.h"

#define STACK_SIZE (2UL << 20)
#define GUARD_SIZE 4096UL
#define VISITED (CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC)

struct guest {
        int root_fd; /* pidfd */
        int namespaces;
        int (*work)(void *userdata);
        void *userdata;
        int entered, result;
};

bool cop_guest_needed(void)
{
        /* By trying: going where one is already changes nothing, and asks for the same rights as coming back. */
        _cleanup_close_ int self = (int)syscall(SYS_pidfd_open, gettid(), COP_PIDFD_THREAD);

        return self < 0 || setns(self, VISITED) < 0;
}

static int be_guest(void *arg)
{
        struct guest *g = arg;

        g->entered = setns(g->root_fd, g->namespaces) < 0 ? -errno : 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* new rights would take it back */
        if (g->entered == 0)
                g->result = g->work(g->userdata);
        return 0;
}

/* The engine may be root of the very user namespace that the tree lives in: that one cannot be entered once more. */
static int other_user_namespace(pid_t root)
{
        struct stat own, there;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/user", root);
        if (stat("/proc/self/ns/user", &own) < 0 || stat(path, &there) < 0)
                return -errno;
        return own.st_ino == there.st_ino && own.st_dev == there.st_dev ? 0 : CLONE_NEWUSER;
}

static int run_on(char *stack, struct guest *g, struct cop_error *err)
{
        int dumpable = prctl(PR_GET_DUMPABLE), status, saved;
        uint64_t all = ~0ULL, mask;

        /* No handler of the caller's may run in the guest.  Not through libc, which keeps 32 and 33 for itself. */
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(mask));
        pid_t pid = clone(be_guest, stack + STACK_SIZE, CLONE_VM | CLONE_FILES | CLONE_VFORK, g);
        saved = errno;
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
        if (pid < 0)
                return cop_error_errno(err, saved, "starting a process for the tree's namespaces");
        while (waitpid(pid, &status, __WALL) < 0)
                if (errno != EINTR)
                        return cop_error_errno(err, errno, "waiting for the process in the tree's namespaces");
        /* New rights may have made the memory, which is shared, undumpable. */
        if (dumpable == 1 && prctl(PR_GET_DUMPABLE) != 1)
                prctl(PR_SET_DUMPABLE, 1);
        if (status != 0)
                return cop_error_set(err, EIO, COP_ERR_internal,
                                     "the process in the tree's namespaces died (status %#x)", (unsigned)status);
        if (g->entered < 0)
                return cop_error_errno(
                        err, -g->entered,
                        "entering the tree's namespaces (this needs root, or the owner of its user namespace)");
        return g->result;
}

int cop_guest_run(pid_t root, int (*work)(void *userdata), void *userdata, struct cop_error *err)
{
        struct guest g = {.work = work, .userdata = userdata};
        _cleanup_close_ int root_fd = (int)syscall(SYS_pidfd_open, root, 0);
        int user = root_fd < 0 ? -errno : other_user_namespace(root);

        if (user < 0)
                return cop_error_errno(err, -user, "looking at the namespaces of process %d", root);
        g.root_fd = root_fd;
        g.namespaces = VISITED | user;
        char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, GUARD_SIZE, PROT_NONE) < 0) {
                int saved = errno;
                if (stack != MAP_FAILED)
                        munmap(stack, STACK_SIZE);
                return cop_error_errno(err, saved, "starting a process for the tree's namespaces");
        }
        int r = run_on(stack, &g, err);
        munmap(stack, STACK_SIZE);
        return r;
}
