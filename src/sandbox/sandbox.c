/* Theory of operation
 *
 *      parent (keeper)                               child (pid 1 of the sandbox)
 *      make the cgroup, set limits
 *      clone3 into all new namespaces ─────────────► wait
 *      write uid_map and gid_map
 *      MAPPED ─────────────────────────────────────► become root, loopback
 *      (cgroup v1) move the child in                 wait
 *      ─ ─ as far as this it is only prepared ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─
 *      clone the layers as detached mounts and map
 *        their ids with the child's user namespace
 *      the name, the layers ───────────────────────► hostname, overlay, mounts, pivot
 *                  ◄───────────────────────────────── MOUNTED
 *      EXECUTE ────────────────────────────────────► cgroup namespace, descriptors, limits, capabilities, seccomp, execve
 *      end of file on the sync socket: it runs
 *
 * The layers come last because of what is made from a node that is still being written: all the rest is ready by then.  The name comes
 * with them because what is prepared may be for a sandbox that nobody has asked for yet.
 *
 * Init's program is executed from a read-only clone of its mount, because root inside can open /proc/1/exe: what it finds
 * there cannot be written, and has no path of the host.
 *
 * Undo in reverse order: killing pid 1 ends every process inside (the kernel does it, and waits for them before pid 1 can be
 * reaped), the mount namespace goes with the last process, the cgroup folder is then empty and removed.
 */
#include "sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/hosts.h"
#include "sandbox/inside.h"
#include "sandbox/layers.h"
#include "sandbox/mounts.h"
#include "sandbox/sysmount.h"
#include "sandbox/userns.h"

#define START_TIMEOUT_MSEC 10000
#define CPU_TOPOLOGY "/sys/devices/system/cpu"

struct cop_sandbox {
        pid_t pid;      /* 0 = not started or reaped */
        int pidfd;      /* owned */
        int control_fd; /* owned */
        int root_fd;    /* owned; the root folder inside, O_PATH: see release_root */
        int sync_fd;    /* owned; to a first process that does not execute init yet: closing it ends that process */
        uint64_t control_dev, control_ino; /* of init's end of the control socket */
        struct cop_cgroup cgroup;
};

/* What the child is to have, and the parent only until it is cloned. */
struct start {
        const struct cop_sandbox_spec *spec;
        int ipc_fd, cpu_fd, init_fd;
        int child_sync_fd, child_control_fd;
};

static void start_done(struct start *s)
{
        cop_close(s->ipc_fd);
        cop_close(s->cpu_fd);
        cop_close(s->init_fd);
        cop_close(s->child_sync_fd);
        cop_close(s->child_control_fd);
}

static int check_spec(const struct cop_sandbox_spec *spec, struct cop_error *err)
{
        if (spec->uid_base < COP_SANDBOX_IDS || spec->uid_base > UINT32_MAX - 2 * COP_SANDBOX_IDS)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "uid_base %u: must be at least %u and leave room for %u ids", spec->uid_base,
                                     COP_SANDBOX_IDS, COP_SANDBOX_IDS);
        if (!spec->cgroup || !spec->init_path)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "cgroup and init_path are needed");
        if (spec->default_uid >= COP_SANDBOX_IDS || spec->default_gid >= COP_SANDBOX_IDS)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "default user %u:%u is over %u",
                                     spec->default_uid, spec->default_gid, COP_SANDBOX_IDS - 1);
        if (spec->workdir && spec->workdir[0] != '/')
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the working folder %s is not absolute",
                                     spec->workdir);
        return spec->hostname ? cop_hosts_check(spec->hostname, err) : 0;
}

static int socket_pair(int flags, int *ret_a, int *ret_b, struct cop_error *err)
{
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0, fds) < 0)
                return cop_error_errno(err, errno, "socketpair");
        *ret_a = fds[0];
        *ret_b = fds[1];
        return 0;
}

static int open_sources(struct start *s, struct cop_error *err)
{
        const struct cop_sandbox_spec *spec = s->spec;
        int r = spec->ipc ? cop_check_private(spec->ipc, false, err) : 0;

        if (r == 0 && (s->init_fd = cop_mount_clone(spec->init_path, MOUNT_ATTR_RDONLY, err)) < 0)
                r = s->init_fd;
        if (r == 0 && spec->ipc &&
            (s->ipc_fd = cop_mount_clone(spec->ipc, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err)) < 0)
                r = s->ipc_fd;
        if (r == 0) /* a host without it is fine */
                s->cpu_fd =
                        cop_mount_clone(CPU_TOPOLOGY, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, NULL);
        return r;
}

static int clone_child(struct cop_sandbox *sb, struct start *s, struct cop_error *err)
{
        pid_t pid = cop_userns_clone(sb->cgroup.fd[COP_CG_UNIFIED], &sb->pidfd, err);

        if (pid < 0)
                return pid;
        if (pid == 0) {
                const struct cop_inside in = {.ipc_fd = s->ipc_fd,
                                              .cpu_fd = s->cpu_fd,
                                              .init_fd = s->init_fd,
                                              .control_fd = s->child_control_fd,
                                              .sync_fd = s->child_sync_fd,
                                              .nofile = s->spec->nofile,
                                              .shm_max = s->spec->limits.memory_max / 2,
                                              .default_uid = s->spec->default_uid,
                                              .default_gid = s->spec->default_gid,
                                              .workdir = s->spec->workdir};
                cop_close(sb->sync_fd); /* else the child would never see the parent's end of file */
                cop_inside_run(&in);
        }
        sb->pid = pid;
        return 0;
}

static int map_ids(struct cop_sandbox *sb, struct start *s, struct cop_error *err)
{
        _cleanup_close_ int userns_fd = cop_userns_map(sb->pid, s->spec->uid_base, err);

        if (userns_fd < 0)
                return userns_fd;
        return s->ipc_fd >= 0 ? cop_mount_idmap(s->ipc_fd, userns_fd, s->spec->ipc, err) : 0;
}

static int tell(struct cop_sandbox *sb, char byte, struct cop_error *err)
{
        if (send(sb->sync_fd, &byte, 1, MSG_NOSIGNAL) != 1)
                return cop_error_errno(err, errno, "the first process of the sandbox is gone");
        return 0;
}

/* Waits for one byte, or for the end of file when wanted is 0. */
static int hear(struct cop_sandbox *sb, char wanted, struct cop_error *err)
{
        struct pollfd p = {.fd = sb->sync_fd, .events = POLLIN};
        struct cop_error report = COP_ERROR_NULL;
        usec_t deadline = cop_now(CLOCK_MONOTONIC) + START_TIMEOUT_MSEC * USEC_PER_MSEC;
        int r;

        do {
                usec_t now = cop_now(CLOCK_MONOTONIC);
                r = now >= deadline ? 0 : poll(&p, 1, (int)((deadline - now) / USEC_PER_MSEC) + 1);
        } while (r < 0 && errno == EINTR);
        if (r <= 0)
                return cop_error_set(err, ETIMEDOUT, COP_ERR_start_failed,
                                     "setting up the sandbox took longer than %d s", START_TIMEOUT_MSEC / 1000);
        ssize_t n = recv(sb->sync_fd, &report, sizeof(report), 0);
        if (n < 0 &&
            errno == ECONNRESET) /* it died with layers unread: the kernel tells that first, and then what it said */
                n = recv(sb->sync_fd, &report, sizeof(report), 0);
        if (n == sizeof(report)) { /* still our own code that wrote it: nothing foreign has run in the child */
                report.message[sizeof(report.message) - 1] = '\0';
                return cop_error_set(err, report.errnum,
                                     report.code == COP_ERR_io_error ? COP_ERR_start_failed : report.code, "%s",
                                     report.message);
        }
        if (wanted ? n == 1 && *(char *)&report == wanted : n == 0)
                return 0;
        return cop_error_set(err, EPIPE, COP_ERR_start_failed,
                             "the first process of the sandbox died while it was set up");
}

static int make_cgroup(struct cop_sandbox *sb, const struct cop_sandbox_spec *spec, struct cop_error *err)
{
        struct cop_cgroup_host host = {0};
        int r = cop_cgroup_detect(&host, err);

        if (r < 0)
                return r;
        r = cop_cgroup_create(&host, spec->cgroup, &sb->cgroup, err);
        cop_cgroup_host_done(&host);
        return r < 0 ? r : cop_cgroup_limits(&sb->cgroup, &spec->limits, err);
}

static void note_control(struct cop_sandbox *sb, int fd)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return;
        sb->control_dev = st.st_dev;
        sb->control_ino = st.st_ino;
}

static int run_prepare(struct cop_sandbox *sb, struct start *s, struct cop_error *err)
{
        bool born_inside = sb->cgroup.fd[COP_CG_UNIFIED] >= 0;
        int r = clone_child(sb, s, err);

        if (r < 0)
                return r;
        s->child_sync_fd = cop_close(s->child_sync_fd); /* so that its death shows as end of file */
        s->child_control_fd = cop_close(s->child_control_fd);
        if ((r = map_ids(sb, s, err)) < 0 || (r = tell(sb, COP_SYNC_MAPPED, err)) < 0)
                return r;
        return cop_cgroup_add(&sb->cgroup, sb->pid, born_inside, err);
}

int cop_sandbox_prepare(const struct cop_sandbox_spec *spec, struct cop_sandbox **ret, struct cop_error *err)
{
        struct start s = {.spec = spec,
                          .ipc_fd = -EBADF,
                          .cpu_fd = -EBADF,
                          .init_fd = -EBADF,
                          .child_sync_fd = -EBADF,
                          .child_control_fd = -EBADF};
        struct cop_sandbox *sb = calloc(1, sizeof(*sb));
        int r = check_spec(spec, err);

        if (!sb)
                return cop_error_errno(err, ENOMEM, "sandbox");
        *sb = (struct cop_sandbox){
                .pidfd = -EBADF, .control_fd = -EBADF, .root_fd = -EBADF, .sync_fd = -EBADF, .cgroup = COP_CGROUP_NULL};
        if (r == 0)
                r = make_cgroup(sb, spec, err);
        if (r == 0)
                r = open_sources(&s, err);
        if (r == 0)
                r = socket_pair(0, &sb->sync_fd, &s.child_sync_fd, err);
        if (r == 0)
                r = socket_pair(0, &sb->control_fd, &s.child_control_fd, err);
        if (r == 0 && cop_set_nonblock(sb->control_fd, 1) < 0)
                r = cop_error_errno(err, errno, "control socket");
        if (r == 0)
                note_control(sb, s.child_control_fd);
        if (r == 0)
                r = run_prepare(sb, &s, err);
        start_done(&s);
        if (r < 0) {
                cop_sandbox_free(sb);
                return r;
        }
        *ret = sb;
        return 0;
}

static int open_namespace(pid_t pid, const char *name, int *ret, struct cop_error *err)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
        *ret = open(path, O_RDONLY | O_CLOEXEC);
        return *ret < 0 ? cop_error_errno(err, errno, "opening the %s namespace of the sandbox", name) : 0;
}

static int send_name(struct cop_sandbox *sb, const char *name, struct cop_error *err)
{
        /* With its end, as an empty message looks like the end of the socket. */
        return send(sb->sync_fd, name, strlen(name) + 1, MSG_NOSIGNAL) < 0
                       ? cop_error_errno(err, errno, "telling the first process of the sandbox its hostname")
                       : 0;
}

static int give_layers(struct cop_sandbox *sb, const struct cop_sandbox_spec *spec, struct cop_error *err)
{
        _cleanup_close_ int userns_fd = -EBADF;
        struct cop_layers layers = COP_LAYERS_NULL;

        if (!spec->upper)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "upper is needed");
        int r = cop_layers_open(spec->lower, spec->lower_count, spec->upper, &layers, err);
        if (r == 0)
                r = cop_check_private(spec->upper, true, err);
        if (r == 0)
                r = open_namespace(sb->pid, "user", &userns_fd, err);
        if (r == 0)
                r = cop_layers_idmap(&layers, userns_fd, err);
        if (r == 0)
                r = send_name(sb, spec->hostname ? spec->hostname : "sandbox", err);
        if (r == 0)
                r = cop_layers_send(&layers, sb->sync_fd, err);
        cop_layers_done(&layers);
        return r;
}

int cop_sandbox_begin(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err)
{
        int r = *sb ? check_spec(spec, err) : cop_sandbox_prepare(spec, sb, err);

        if (r == 0) {
                r = give_layers(*sb, spec, err);
                /* It is dead, and has perhaps said why: cop_sandbox_finish hears it. */
                if (r == -EPIPE || r == -ECONNRESET)
                        return 0;
        }
        if (r < 0)
                *sb = cop_sandbox_free(*sb);
        return r;
}

static int finish(struct cop_sandbox *sb, const struct cop_sandbox_spec *spec, struct cop_error *err)
{
        char path[64];
        int r = hear(sb, COP_SYNC_MOUNTED, err);

        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/%d/root", (int)sb->pid);
        sb->root_fd =
                open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* while the child waits and cannot be dead already */
        if (sb->root_fd < 0)
                return cop_error_errno(err, errno, "opening the sandbox's root");
        if (spec->hold)
                return 0;
        if ((r = tell(sb, COP_SYNC_EXECUTE, err)) < 0 || (r = hear(sb, 0, err)) < 0)
                return r;
        sb->sync_fd = cop_close(sb->sync_fd);
        return 0;
}

int cop_sandbox_finish(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err)
{
        int r = finish(*sb, spec, err);

        if (r < 0)
                *sb = cop_sandbox_free(*sb);
        return r;
}

int cop_sandbox_start(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err)
{
        int r = cop_sandbox_begin(spec, sb, err);

        return r < 0 ? r : cop_sandbox_finish(spec, sb, err);
}

pid_t cop_sandbox_pid(const struct cop_sandbox *sb)
{
        return sb->pid;
}

int cop_sandbox_pidfd(const struct cop_sandbox *sb)
{
        return sb->pidfd;
}

int cop_sandbox_control_fd(const struct cop_sandbox *sb)
{
        return sb->control_fd;
}

int cop_sandbox_root(const struct cop_sandbox *sb)
{
        return sb->root_fd;
}

int cop_sandbox_namespaces(const struct cop_sandbox *sb, struct cop_sandbox_namespaces *ret, struct cop_error *err)
{
        *ret = (struct cop_sandbox_namespaces){-EBADF, -EBADF, -EBADF, -EBADF, -EBADF};
        int r = open_namespace(sb->pid, "user", &ret->user_fd, err);

        if (r == 0)
                r = open_namespace(sb->pid, "mnt", &ret->mount_fd, err);
        if (r == 0)
                r = open_namespace(sb->pid, "net", &ret->net_fd, err);
        if (r == 0)
                r = open_namespace(sb->pid, "ipc", &ret->ipc_fd, err);
        if (r == 0)
                r = open_namespace(sb->pid, "uts", &ret->uts_fd, err);
        return r;
}

pid_t cop_sandbox_set_init(struct cop_sandbox *sb, pid_t pid, int pidfd, int control_fd)
{
        pid_t holder = sb->pid;

        sb->sync_fd = cop_close(sb->sync_fd);
        cop_sandbox_kill(sb);
        cop_close(sb->pidfd);
        cop_close(sb->control_fd);
        sb->pid = pid;
        sb->pidfd = pidfd;
        sb->control_fd = control_fd;
        return holder;
}

int cop_sandbox_renew_proc(struct cop_error *err)
{
        return cop_mounts_renew_proc(err);
}

void cop_sandbox_control_inode(const struct cop_sandbox *sb, uint64_t *ret_dev, uint64_t *ret_ino)
{
        *ret_dev = sb->control_dev;
        *ret_ino = sb->control_ino;
}

void cop_sandbox_note_control(struct cop_sandbox *sb, int fd)
{
        note_control(sb, fd);
}

struct cop_cgroup *cop_sandbox_cgroup(struct cop_sandbox *sb)
{
        return &sb->cgroup;
}

void cop_sandbox_kill(struct cop_sandbox *sb)
{
        if (sb->pidfd >= 0)
                syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL, 0);
}

int cop_sandbox_wipe(struct cop_sandbox *sb)
{
        int r = cop_cgroup_remove(&sb->cgroup);

        if (r == -EBUSY)
                cop_cgroup_kill(&sb->cgroup);
        return r;
}

/* Whoever drops the last reference to an overlay waits until the whole filesystem below it is on disk (ovl_sync_fs): seconds,
 * when somebody has just written gigabytes.  The end of init does not wait, because we hold root_fd; the wait is left to a
 * process that has nothing else open and that nobody waits for. */
static void release_root(struct cop_sandbox *sb)
{
        int fds[2];

        if (sb->root_fd < 0 || pipe2(fds, O_CLOEXEC) < 0)
                return;
        pid_t pid = fork();
        if (pid == 0) {
                char byte;
                if (dup2(sb->root_fd, 0) < 0 || dup2(fds[0], 1) < 0 || close_range(2, ~0U, 0) < 0)
                        _exit(1);
                (void)!read(1, &byte, 1); /* until the parent has closed its own */
                _exit(0);
        }
        sb->root_fd = cop_close(sb->root_fd);
        close(fds[0]);
        close(fds[1]);
}

struct cop_sandbox *cop_sandbox_free(struct cop_sandbox *sb)
{
        usec_t deadline = cop_now(CLOCK_MONOTONIC) + 2 * USEC_PER_SEC;

        if (!sb)
                return NULL;
        cop_sandbox_kill(sb);
        if (sb->pid > 0) /* ECHILD when the caller has reaped it */
                while (waitpid(sb->pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        while (cop_sandbox_wipe(sb) == -EBUSY && cop_now(CLOCK_MONOTONIC) < deadline)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        release_root(sb);
        cop_cgroup_done(&sb->cgroup);
        cop_close(sb->root_fd);
        cop_close(sb->sync_fd);
        cop_close(sb->control_fd);
        cop_close(sb->pidfd);
        free(sb);
        return NULL;
}
