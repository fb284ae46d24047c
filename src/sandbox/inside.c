#include "inside.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "sandbox/hosts.h"
#include "sandbox/lockdown.h"
#include "sandbox/mounts.h"
#include "sandbox/net.h"
#include "sandbox/userns.h"
#include "sandbox/wire.h"

#define PARKING 64 /* above every fixed number */

static int await(int sync_fd, char wanted)
{
        char byte = 0;
        ssize_t n;

        do
                n = recv(sync_fd, &byte, 1, 0);
        while (n < 0 && errno == EINTR);
        return n == 1 && byte == wanted ? 0 : -EPIPE;
}

static int become_root(struct cop_error *err)
{
        int r = cop_userns_become_root(err);

        if (r < 0)
                return r;
        /* After the change of ids, which clears it.  A parent that died just before shows as end of file on sync_fd. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
                return cop_error_errno(err, errno, "PR_SET_PDEATHSIG");
        if (setsid() < 0)
                return cop_error_errno(err, errno, "setsid");
        return 0;
}

/* All that needs neither a name nor layers. */
static int prepare(struct cop_error *err)
{
        int r = become_root(err);

        if (r == 0)
                r = cop_net_loopback_up(err);
        if (r == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                r = cop_error_errno(err, errno, "making the mount tree private");
        return r;
}

static int take_name(int sync_fd, char name[static COP_HOSTNAME_MAX + 1], struct cop_error *err)
{
        ssize_t n;

        do
                n = recv(sync_fd, name, COP_HOSTNAME_MAX + 1, 0);
        while (n < 0 && errno == EINTR);
        if (n <= 0)
                return cop_error_errno(err, n < 0 ? errno : EPIPE, "waiting for the hostname");
        name[n - 1] = '\0';
        return sethostname(name, strlen(name)) < 0 ? cop_error_errno(err, errno, "setting the hostname %s", name) : 0;
}

static int mount_all(const struct cop_inside *in, int sync_fd, struct cop_error *err)
{
        char name[COP_HOSTNAME_MAX + 1];
        const struct cop_mount_sources sources = {
                .ipc_fd = in->ipc_fd, .cpu_fd = in->cpu_fd, .shm_max = in->shm_max, .hostname = name};
        struct cop_layers layers = COP_LAYERS_NULL;

        int r = take_name(sync_fd, name, err);
        if (r == 0)
                r = cop_layers_receive(sync_fd, &layers, err);
        if (r == -EPIPE)
                _exit(1); /* the parent is gone, or has given it up */
        if (r == 0)
                r = cop_layers_mount(&layers, err);
        if (r == 0)
                r = cop_mounts_setup(&sources, err);
        cop_layers_done(&layers);
        return r;
}

/* 0, 1, 2: /dev/null; 3: control; everything else goes at execve. */
static int place_fds(const struct cop_inside *in, int *init_fd, int *sync_fd, struct cop_error *err)
{
        int control_fd = fcntl(in->control_fd, F_DUPFD_CLOEXEC, PARKING);
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        *init_fd = fcntl(in->init_fd, F_DUPFD_CLOEXEC, PARKING);
        *sync_fd = fcntl(in->sync_fd, F_DUPFD_CLOEXEC, PARKING);
        if (control_fd < 0 || null_fd < 0 || *init_fd < 0 || *sync_fd < 0)
                return cop_error_errno(err, errno, "descriptors of init");
        if (close_range(COP_INIT_CONTROL_FD, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "close_range");
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
                if (dup2(null_fd, fd) < 0)
                        return cop_error_errno(err, errno, "descriptors of init");
        if (dup2(control_fd, COP_INIT_CONTROL_FD) < 0)
                return cop_error_errno(err, errno, "descriptors of init");
        return 0;
}

static int execute(const struct cop_inside *in, int *sync_fd, struct cop_error *err)
{
        static char *const env[] = {NULL};
        _cleanup_free_ char *user = NULL, *workdir = NULL;
        int init_fd = -EBADF, r;

        if (asprintf(&user, "--user=%u:%u", in->default_uid, in->default_gid) < 0 ||
            (in->workdir && asprintf(&workdir, "--workdir=%s", in->workdir) < 0))
                return cop_error_errno(err, ENOMEM, "arguments of init");
        char *const argv[] = {(char *)"coppice-init", user, workdir, NULL};
        if (unshare(CLONE_NEWCGROUP) < 0) /* now, when the root of the new one is the sandbox's cgroup */
                return cop_error_errno(err, errno, "making a cgroup namespace");
        r = place_fds(in, &init_fd, sync_fd, err);
        if (r == 0)
                r = cop_lockdown_limits(in->nofile, err);
        if (r == 0)
                r = cop_lockdown_caps(err);
        if (r == 0)
                r = cop_lockdown_seccomp(err);
        if (r < 0)
                return r;
        syscall(SYS_execveat, init_fd, "", argv, env, AT_EMPTY_PATH);
        return cop_error_errno(err, errno, "executing coppice-init in the sandbox");
}

_Noreturn void cop_inside_run(const struct cop_inside *in)
{
        struct cop_error err = COP_ERROR_NULL;
        int sync_fd = in->sync_fd;

        cop_signals_reset();
        umask(0); /* modes of what is made in the sandbox are exact; lockdown sets the final one */
        if (await(sync_fd, COP_SYNC_MAPPED) < 0)
                _exit(1);
        int r = prepare(&err);
        if (r == 0)
                r = mount_all(in, sync_fd, &err);
        if (r == 0) {
                const char done = COP_SYNC_MOUNTED;
                if (send(sync_fd, &done, 1, MSG_NOSIGNAL) != 1 || await(sync_fd, COP_SYNC_EXECUTE) < 0)
                        _exit(1);
                r = execute(in, &sync_fd, &err);
        }
        (void)!send(sync_fd, &err, sizeof(err), MSG_NOSIGNAL);
        _exit(1);
}
