/* Namespaces and the tree: who forks whom (as births.c has planned it), sessions, groups, zombies. */
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/thread.h"
#include "freezer/restore.h"

enum { BARRIER_TREE, BARRIER_READY };

static int futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
        return (int)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static int failed(struct cop_error *err)
{
        return cop_error_set(err, ECANCELED, COP_ERR_start_failed, "another process of the tree could not be rebuilt");
}

__attribute__((noreturn)) static void report_and_exit(struct cop_restore *r, const struct cop_error *err)
{
        uint32_t none = 0;

        if (__atomic_compare_exchange_n(&r->shared->failed, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
                r->shared->error = *err;
                __atomic_store_n(&r->shared->failed, 2, __ATOMIC_SEQ_CST);
        }
        for (int i = 0; i < COP_BARRIERS; i++)
                futex(&r->shared->barrier[i], FUTEX_WAKE, INT32_MAX, NULL);
        cop_restore_tell(r->shared);
        _exit(118);
}

/* Every live process of the tree comes to each barrier once, and may do something of its own before it waits for the others. */
static void arrive(struct cop_restore *r, int which)
{
        uint32_t *word = &r->shared->barrier[which];

        if (__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST) >= r->live)
                futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

static int await_all(struct cop_restore *r, int which, struct cop_error *err)
{
        uint32_t *word = &r->shared->barrier[which], now;
        /* Woken up it might wait for the processor of who wakes it up, which goes on. */
        bool look = r->live <= r->processors;

        while ((now = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < r->live) {
                if (__atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST) || r->shared->control.failed)
                        return failed(err);
                cop_await_change(word, now, look);
                look = look && __atomic_load_n(word, __ATOMIC_SEQ_CST) != now;
        }
        return 0;
}

/* ---- forking ---- */

__attribute__((noreturn)) static void become(struct cop_restore *r, uint32_t index);

static pid_t clone_pid(pid_t pid, uint64_t flags, int exit_signal, int cgroup_fd)
{
        struct clone_args args = {
                .flags = flags,
                .exit_signal = (uint64_t)exit_signal,
                .set_tid = pid ? (uintptr_t)&pid : 0,
                .set_tid_size = pid ? 1 : 0,
                .cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
        };

        return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static int compare_pid(const void *a, const void *b)
{
        pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

        return (x > y) - (x < y);
}

pid_t cop_restore_spare_pid(const struct cop_restore *r, uint32_t number)
{
        size_t n = 0, max = 3UL * r->image->count[IMG_PROCS] + r->image->count[IMG_THREADS];
        _cleanup_free_ pid_t *used = malloc(max * sizeof(*used));
        pid_t pid = 2;

        if (!used)
                return -ENOMEM;
        for (uint32_t i = 0; i < r->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = RESTORE_PROC(r, i);
                used[n++] = p->pid;
                used[n++] = p->pgid;
                used[n++] = p->sid;
        }
        for (uint32_t i = 0; i < r->image->count[IMG_THREADS]; i++)
                used[n++] = RESTORE_THREAD(r, i)->tid;
        qsort(used, n, sizeof(*used), compare_pid);
        for (size_t i = 0, left = number;; pid++) {
                while (i < n && used[i] < pid)
                        i++;
                if ((i == n || used[i] != pid) && left-- == 0)
                        return pid;
        }
}

pid_t cop_restore_fork_helper(const struct cop_restore *r)
{
        pid_t pid = cop_restore_spare_pid(r, r->self);

        if (pid > 0)
                return clone_pid(pid, 0, 0, -1);
        errno = -pid;
        return -1;
}

static int fork_child(struct cop_restore *r, uint32_t index, uint64_t flags, struct cop_error *err)
{
        const struct img_proc *p = RESTORE_PROC(r, index);
        uint64_t shared = (p->shares_fs ? CLONE_FS : 0) | (p->shares_files ? CLONE_FILES : 0);
        pid_t pid = clone_pid(p->pid, shared | flags, flags & CLONE_PARENT ? 0 : p->exit_signal, -1);

        if (pid == 0)
                become(r, index);
        if (pid < 0)
                return cop_error_errno(err, errno, "making process %d", p->pid);
        return 0;
}

static uint32_t find_pid(const struct cop_restore *r, pid_t pid)
{
        for (uint32_t i = 0; i < r->image->count[IMG_PROCS]; i++)
                if (RESTORE_PROC(r, i)->pid == pid)
                        return i;
        return IMG_NONE;
}

/* Those whose birth is this process's affair in that way; of a session, if that is not 0. */
static int fork_those(struct cop_restore *r, uint32_t self, enum cop_birth_way way, pid_t sid, struct cop_error *err)
{
        int ret = 0;

        for (uint32_t i = 1; i < r->image->count[IMG_PROCS] && ret == 0; i++) {
                const struct cop_birth *b = &r->births[i];
                bool sibling =
                        way == COP_BIRTH_SIBLING || (way == COP_BIRTH_STAND_IN && RESTORE_PROC(r, i)->parent == self);
                if (b->by == self && b->way == way && (sid == 0 || b->sid == sid))
                        ret = fork_child(r, i, sibling ? CLONE_PARENT : 0, err);
        }
        return ret;
}

static bool has_forked(const struct cop_restore *r, uint32_t self)
{
        for (uint32_t i = 1; i < r->image->count[IMG_PROCS]; i++)
                if (r->births[i].by == self)
                        return true;
        return false;
}

/* Through a child that ends at once: in a session of a leader that is gone it holds that one's pid meanwhile, and makes the session. */
static int fork_orphans_of(struct cop_restore *r, uint32_t self, enum cop_birth_way way, pid_t sid,
                           struct cop_error *err)
{
        bool stand_in = way == COP_BIRTH_STAND_IN;
        pid_t middle = stand_in ? clone_pid(sid, 0, SIGCHLD, -1) : cop_restore_fork_helper(r);
        int status;

        if (middle == 0) {
                struct cop_error e = COP_ERROR_NULL;
                if (stand_in && setsid() < 0)
                        _exit(1);
                if (fork_those(r, self, way, sid, &e) < 0)
                        report_and_exit(r, &e);
                _exit(0);
        }
        if (middle < 0 || waitpid(middle, &status, __WALL) < 0)
                return cop_error_errno(err, errno, "making the orphaned processes of session %d", sid);
        return 0;
}

static int fork_orphans(struct cop_restore *r, uint32_t self, struct cop_error *err)
{
        int ret = 0;

        for (uint32_t i = 1; i < r->image->count[IMG_PROCS] && ret == 0; i++) {
                const struct cop_birth *b = &r->births[i];
                bool first = b->by == self && (b->way == COP_BIRTH_ORPHAN || b->way == COP_BIRTH_STAND_IN);
                for (uint32_t k = 1; k < i && first; k++)
                        first = r->births[k].by != self || r->births[k].way != b->way || r->births[k].sid != b->sid;
                if (first)
                        ret = fork_orphans_of(r, self, b->way, b->sid, err);
        }
        return ret;
}

/* ---- one process ---- */

/* The group of a leader that is gone: a stand-in holds its pid while we join.  One whose leader is in the tree may be yet to be made. */
static int join_group(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        bool gone = find_pid(r, p->pgid) == IMG_NONE;
        int done = p->pgid <= 0 || getpgrp() == p->pgid ? 0 : setpgid(0, p->pgid);
        pid_t stand_in = -1;

        if (done == 0)
                return 0;
        if (gone && (stand_in = clone_pid(p->pgid, 0, 0, -1)) == 0) {
                setpgid(0, 0);
                pause();
                _exit(0);
        }
        if (gone && stand_in < 0 && errno != EEXIST) /* else it is another's */
                return cop_error_errno(err, errno, "making the process group %d", p->pgid);
        for (int i = 0; i < 50000 && done < 0; i++) {
                if (stand_in > 0)
                        setpgid(stand_in, stand_in);
                done = setpgid(0, p->pgid);
                if (done < 0)
                        usleep(100);
        }
        int saved = errno;
        if (stand_in > 0) {
                kill(stand_in, SIGKILL);
                waitpid(stand_in, NULL, __WALL);
        }
        return done < 0 ? cop_error_errno(err, saved, "joining the process group %d", p->pgid) : 0;
}

/* Who lives on in its session was forked by it. */
static int lead_orphans(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        pid_t sid = RESTORE_PROC(r, index)->pid;
        int ret = setsid() < 0 ? cop_error_errno(err, errno, "making the session %d", sid) : 0;

        if (ret == 0)
                ret = fork_those(r, index, COP_BIRTH_SIBLING, 0, err);
        return ret < 0 ? ret : fork_those(r, index, COP_BIRTH_ORPHAN, 0, err);
}

__attribute__((noreturn)) static void become_zombie(struct cop_restore *r, uint32_t index)
{
        const struct img_proc *p = RESTORE_PROC(r, index);
        struct cop_error err = COP_ERROR_NULL;
        int ret = p->pid == p->sid    ? lead_orphans(r, index, &err)
                  : p->pid == p->pgid ? setpgid(0, 0)
                                      : join_group(r, p, &err);

        if (ret < 0)
                report_and_exit(r, &err);
        prctl(PR_SET_NAME, cop_restore_string(r, &p->comm));
        if (p->uid || p->gid) /* an owner's namespace may not have them */
                (void)!(setresgid(p->gid, p->gid, p->gid) < 0 || setresuid(p->uid, p->uid, p->uid) < 0);
        cop_restore_end(p->exit_status);
}

/* Zombie children must be dead, and their SIGCHLD forgotten, before the frozen signals are put back. */
static void await_zombies(struct cop_restore *r, uint32_t self)
{
        struct timespec now = {0};
        sigset_t set;

        for (uint32_t i = self + 1; i < r->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = RESTORE_PROC(r, i);
                siginfo_t info;
                /* One that another has made is ours when that has ended. */
                for (int k = 0; p->parent == self && p->state == IMG_ZOMBIE && k < 50000; k++) {
                        if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT | __WALL) == 0)
                                break;
                        usleep(100);
                }
        }
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        while (sigtimedwait(&set, NULL, &now) > 0)
                ;
}

/* All that it makes are born by then, into the group it had before; who joins this one waits until all of the tree are there. */
static int lead_group(const struct img_proc *p, struct cop_error *err)
{
        if (p->pid == p->pgid && p->pid != p->sid && setpgid(0, 0) < 0)
                return cop_error_errno(err, errno, "making the process group %d", p->pgid);
        return 0;
}

static int enter_root(const struct cop_restore *r, const struct img_proc *p)
{
        char path[32];

        if (p->root_file == IMG_NONE)
                return chroot(cop_restore_string(r, &p->root));
        snprintf(path, sizeof(path), "/proc/self/fd/%d", r->objects[p->root_file]);
        return chroot(path);
}

/* Last, since other processes may share it. */
static int restore_folder(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        if (p->shares_fs)
                return 0;
        umask((mode_t)p->umask);
        if ((p->cwd_file == IMG_NONE ? chdir(cop_restore_string(r, &p->cwd)) : fchdir(r->objects[p->cwd_file])) < 0)
                return cop_error_errno(err, errno, "entering the folder %s of process %d",
                                       cop_restore_string(r, &p->cwd), p->pid);
        if (strcmp(cop_restore_string(r, &p->root), "/") != 0 && enter_root(r, p) < 0)
                return cop_error_errno(err, errno, "entering the root %s of process %d",
                                       cop_restore_string(r, &p->root), p->pid);
        return 0;
}

static int restore_identity(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        char text[16];

        if (p->thp_disable) /* the other bits are flags */
                prctl(PR_SET_THP_DISABLE, 1, p->thp_disable & ~1U, 0, 0);
        if (p->oom_score_adj != 0) {
                snprintf(text, sizeof(text), "%d", p->oom_score_adj);
                (void)cop_write_kernel_file(r->proc_fd, "oom_score_adj", text, NULL); /* lowering may need rights */
        }
        if (p->coredump_filter != IMG_COREDUMP_FILTER) {
                snprintf(text, sizeof(text), "%#x", p->coredump_filter);
                (void)cop_write_kernel_file(r->proc_fd, "coredump_filter", text, NULL);
        }
        if (p->loginuid != UINT32_MAX) {
                snprintf(text, sizeof(text), "%u", p->loginuid);
                (void)cop_write_kernel_file(r->proc_fd, "loginuid", text, NULL); /* where the engine has none */
        }
        const char *actions = cop_image_at(r->image, &p->sigactions);
        for (long sig = 1; sig <= 64; sig++) {
                if (sig == SIGKILL || sig == SIGSTOP)
                        continue;
                if (syscall(SYS_rt_sigaction, sig, actions + (sig - 1) * 32, NULL, 8) < 0)
                        return cop_error_errno(err, errno, "setting signal %ld of process %d", sig, p->pid);
        }
        return 0;
}

static int open_proc(struct cop_restore *r, struct cop_error *err)
{
        int fd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        r->proc_fd = fd < 0 ? fd : cop_restore_move_high(r, fd);
        return r->proc_fd < 0 ? cop_error_errno(err, errno, "opening /proc/self (the tree's root needs a /proc)") : 0;
}

static int run_stub(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_proc *p = RESTORE_PROC(r, index);
        bool adopts = r->births[index].adopts;

        if (adopts)
                prctl(PR_SET_CHILD_SUBREAPER, 1);
        int ret = fork_those(r, index, COP_BIRTH_EARLY, 0, err);
        r->self = index;
        if (ret == 0 && p->sid == p->pid && getsid(0) != p->pid && setsid() < 0)
                ret = cop_error_errno(err, errno, "making the session %d", p->sid);
        if (ret == 0)
                ret = cop_restore_terminal(r, p, err);
        if (ret == 0)
                ret = fork_those(r, index, COP_BIRTH_LATE, 0, err);
        if (ret == 0)
                ret = fork_those(r, index, COP_BIRTH_SIBLING, 0, err);
        if (ret == 0)
                ret = fork_orphans(r, index, err);
        if (has_forked(r, index))
                cop_step_aside();
        if (ret == 0)
                ret = lead_group(p, err);
        /* Shared descriptors are put in place by whose they are as soon as all have arrived. */
        if (ret == 0 && p->shares_files)
                ret = open_proc(r, err);
        if (ret == 0)
                arrive(r, BARRIER_TREE);
        if (ret == 0 && !p->shares_files)
                ret = open_proc(r, err);
        if (ret == 0)
                ret = await_all(r, BARRIER_TREE, err);
        cop_restore_mark(r, COP_MARK_TREE);
        if (ret == 0 && p->pid != p->pgid)
                ret = join_group(r, p, err);
        await_zombies(r, index);
        if (ret == 0 && !p->shares_files)
                ret = cop_restore_descriptors(r, err);
        cop_restore_mark(r, COP_MARK_FDS);
        if (ret == 0 && !p->shares_files)
                ret = restore_identity(r, p, err);
        /* From here on nobody needs another's descriptors or pids, and all that end have. */
        if (ret == 0) {
                arrive(r, BARRIER_READY);
                ret = await_all(r, BARRIER_READY, err);
        }
        cop_restore_mark(r, COP_MARK_READY);
        if (p->subreaper || adopts)
                prctl(PR_SET_CHILD_SUBREAPER, p->subreaper);
        if (ret == 0 &&
            p->shares_files) { /* what opens files: before, another was putting descriptors in their places */
                cop_restore_foreground(r, p);
                ret = restore_identity(r, p, err);
        }
        if (ret == 0)
                ret = restore_folder(r, p, err);
        if (ret == 0)
                ret = cop_restore_memory(r, err);
        return ret;
}

static void become(struct cop_restore *r, uint32_t index)
{
        const struct img_proc *p = RESTORE_PROC(r, index);
        struct cop_error err = COP_ERROR_NULL;

        if (p->state == IMG_ZOMBIE)
                become_zombie(r, index);
        int ret = run_stub(r, index, &err);
        if (ret == 0)
                cop_error_set(&err, EIO, COP_ERR_internal, "process %d came back from the trampoline", p->pid);
        report_and_exit(r, &err);
}

/* ---- the first process ---- */

/* For the tree's own descriptors, and as many above them. */
static int raise_descriptor_limit(const struct cop_restore *r)
{
        rlim_t want = (rlim_t)r->base_fd + r->image->count[IMG_FILES] * 2 + 1024;
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return 0;
        limit.rlim_max = MAX_OF(limit.rlim_max, want);
        limit.rlim_cur = limit.rlim_max;
        return setrlimit(RLIMIT_NOFILE, &limit);
}

static int move_descriptors(struct cop_restore *r, struct cop_error *err)
{
        if (raise_descriptor_limit(r) < 0)
                return cop_error_errno(err, errno, "raising the descriptor limit");
        r->objects = malloc((r->image->count[IMG_FILES] + 1) * sizeof(int));
        r->sources = malloc(r->image->count[IMG_SOURCES] * sizeof(int));
        if (!r->objects || !r->sources)
                return cop_error_errno(err, ENOMEM, "rebuilding descriptors");
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++)
                r->objects[i] = -EBADF;
        for (uint32_t i = 0; i < r->image->count[IMG_SOURCES]; i++) {
                r->sources[i] = cop_restore_move_high(r, r->image->source_fds[i]);
                if (r->sources[i] < 0)
                        return cop_error_errno(err, -r->sources[i], "moving descriptors");
        }
        r->shared_fd = cop_restore_move_high(r, r->shared_fd);
        r->pass_fd[COP_PASS_TREE] = cop_restore_move_high(r, r->pass_fd[COP_PASS_TREE]);
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind != IMG_FILE_EXTERNAL)
                        continue;
                for (size_t k = 0; k < r->request->external_count; k++)
                        if (strcmp(r->request->externals[k].name, cop_restore_string(r, &f->path)) == 0)
                                r->objects[i] = fcntl(r->request->externals[k].fd, F_DUPFD_CLOEXEC, r->base_fd);
                if (r->objects[i] < 0)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "the image needs the external descriptor \"%s\"",
                                             cop_restore_string(r, &f->path));
        }
        close_range(0, (unsigned)r->base_fd - 1, 0);
        /* The table of descriptors grows now: while another task shares it (restore_as.c), the kernel waits for all processors. */
        int top = dup3(r->shared_fd, r->base_fd + (int)r->image->count[IMG_FILES] * 2 + 1023, O_CLOEXEC);
        if (top < 0)
                return cop_error_errno(err, errno, "making room for descriptors");
        close(top);
        return 0;
}

static void start_names(struct cop_restore *r)
{
        const struct img_tree *t = IMG_RECORD(r->image, IMG_TREE, img_tree, 0);

        if (r->new_uts) {
                (void)!sethostname(cop_restore_string(r, &t->hostname), t->hostname.length);
                (void)!setdomainname(cop_restore_string(r, &t->domainname), t->domainname.length);
        }
}

static void tell_bound(struct cop_restore *r)
{
        __atomic_store_n(&r->shared->bound, 1, __ATOMIC_SEQ_CST);
        cop_restore_tell(r->shared);
}

__attribute__((noreturn)) static void first_process(struct cop_restore *r)
{
        struct cop_error err = COP_ERROR_NULL;
        int ret = 0;

        cop_restore_mark(r, COP_MARK_START);
        (void)sched_setaffinity(0, sizeof(r->cpus), &r->cpus);
        start_names(r);
        if (r->request->setup)
                ret = r->request->setup(r->request->userdata, &err);
        cop_restore_mark(r, COP_MARK_SETUP);
        if (ret == 0)
                ret = move_descriptors(r, &err);
        if (ret == 0)
                ret = cop_restore_objects(r, &err);
        cop_restore_as_done(r);
        if (ret < 0)
                report_and_exit(r, &err);
        cop_restore_mark(r, COP_MARK_OBJECTS);
        if (r->request->bound)
                tell_bound(r);
        become(r, 0);
}

/* ---- namespaces, in the helper ---- */

static int write_time_offsets(struct cop_restore *r, struct cop_error *err)
{
        const struct img_tree *t = IMG_RECORD(r->image, IMG_TREE, img_tree, 0);
        struct timespec mono, boot, tick = {0};
        char text[128];
        _cleanup_close_ int fd = -EBADF;

        if (unshare(CLONE_NEWTIME) < 0)
                return cop_error_errno(err, errno, "making a time namespace");
        /* Offsets are relative to the host's clocks; the engine may itself live in a time namespace with offsets: then
         * the values the helper sees are the base. */
        clock_gettime(CLOCK_MONOTONIC, &mono);
        clock_gettime(CLOCK_BOOTTIME, &boot);
        /* The coarse clock is up to a tick behind, and must not go back either. */
        clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
        int64_t dm = (int64_t)t->monotonic_ns - (mono.tv_sec * 1000000000LL + mono.tv_nsec) + tick.tv_nsec;
        int64_t db = (int64_t)t->boottime_ns - (boot.tv_sec * 1000000000LL + boot.tv_nsec) + tick.tv_nsec;
        int64_t ms = dm / 1000000000, mn = dm % 1000000000, bs = db / 1000000000, bn = db % 1000000000;
        if (mn < 0) {
                mn += 1000000000;
                ms--;
        }
        if (bn < 0) {
                bn += 1000000000;
                bs--;
        }
        snprintf(text, sizeof(text), "monotonic %lld %lld\nboottime %lld %lld\n", (long long)ms, (long long)mn,
                 (long long)bs, (long long)bn);
        fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                return cop_error_errno(err, errno, "setting the clocks of the time namespace");
        return 0;
}

static int enter(int fd, int type, const char *name, struct cop_error *err)
{
        if (fd >= 0 && setns(fd, type) < 0)
                return cop_error_errno(err, errno, "entering the %s namespace", name);
        return 0;
}

static int enter_namespaces(struct cop_restore *r, struct cop_error *err)
{
        const struct cop_thaw_namespaces *ns = &r->request->namespaces;
        int fresh = (ns->mount_fd < 0 ? CLONE_NEWNS : 0) | (ns->net_fd < 0 ? CLONE_NEWNET : 0) |
                    (ns->uts_fd < 0 ? CLONE_NEWUTS : 0) | (ns->cgroup_fd < 0 ? CLONE_NEWCGROUP : 0);
        /* /proc here is still the engine's: the offsets file must be written before its mount namespace is left. */
        int ret = enter(ns->user_fd, CLONE_NEWUSER, "user", err);

        r->new_uts = ns->uts_fd < 0;
        if (ret == 0 && ns->user_fd >= 0 && (setgroups(0, NULL), setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
                ret = cop_error_errno(err, errno, "becoming root of the user namespace");
        prctl(PR_SET_DUMPABLE, 1); /* cleared by the change; /proc/self would belong to nobody */
        if (ret == 0)
                ret = write_time_offsets(r, err);
        if (ret == 0)
                ret = enter(ns->net_fd, CLONE_NEWNET, "network", err);
        if (ret == 0)
                ret = enter(ns->ipc_fd, CLONE_NEWIPC, "ipc", err);
        if (ret == 0 && ns->ipc_fd < 0 && unshare(CLONE_NEWIPC) < 0)
                ret = cop_error_errno(err, errno, "making an ipc namespace");
        if (ret == 0)
                ret = cop_restore_sysv(r, err);
        if (ret == 0)
                ret = enter(ns->uts_fd, CLONE_NEWUTS, "uts", err);
        if (ret == 0)
                ret = enter(ns->cgroup_fd, CLONE_NEWCGROUP, "cgroup", err);
        if (ret == 0)
                ret = enter(ns->mount_fd, CLONE_NEWNS, "mount", err);
        if (ret == 0 && fresh && unshare(fresh) < 0)
                ret = cop_error_errno(err, errno, "making namespaces");
        return ret;
}

int cop_restore_start(struct cop_restore *r, struct cop_error *err)
{
        uint64_t all = ~0ULL;
        int ret;

        /* Not through libc, which keeps 32 and 33 for itself and unblocked. */
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all));
        prctl(PR_SET_DUMPABLE, 1);
        (void)raise_descriptor_limit(r); /* while we may: in a user namespace nobody can go above the hard one */
        ret = enter_namespaces(r, err);
        if (ret < 0)
                report_and_exit(r, err);
        uint64_t flags = CLONE_NEWPID | CLONE_PARENT | (r->request->cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0);
        pid_t pid = clone_pid(0, flags, 0, r->request->cgroup_fd);
        if (pid == 0)
                first_process(r);
        if (pid < 0) {
                cop_error_errno(err, errno, "making the first process");
                report_and_exit(r, err);
        }
        r->shared->root_pid = (uint32_t)pid;
        _exit(0);
}
