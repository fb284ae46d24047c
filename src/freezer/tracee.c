#include "freezer/tracee.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "freezer/procfs.h"
#include "freezer/waits.h"

#ifndef NS_GET_PID_FROM_PIDNS
#define NS_GET_PID_FROM_PIDNS _IOR(0xb7, 0x6, int)
#define NS_GET_PID_IN_PIDNS _IOR(0xb7, 0x8, int)
#endif

#define SYSCALL_BYTES 0x050f /* of the instruction */
#define WAIT_TURNS 100       /* before sleeping: what is waited for mostly takes less than waking up does */
#define STOP_TIMEOUT (10 * USEC_PER_SEC)
#define LET_GO_TRIES 10000 /* a second: a killed thread has ended before */
#define TASKS_MAX 32768
#define REFUSALS 5
#define VFORK_SPINS 30  /* rounds of waiting after which a thread that does not stop is looked at: a millisecond */
#define VDSO_STEPS 1000 /* reading a clock takes some hundred */

pid_t cop_pid_inside(int pidns_fd, pid_t pid)
{
        int r = ioctl(pidns_fd, NS_GET_PID_IN_PIDNS, pid);

        return r > 0 ? r : 0;
}

pid_t cop_pid_outside(int pidns_fd, pid_t nspid)
{
        int r = ioctl(pidns_fd, NS_GET_PID_FROM_PIDNS, nspid);

        return r > 0 ? r : 0;
}

int cop_mem_read(const struct cop_proc *p, uint64_t address, void *buf, size_t n)
{
        ssize_t r = pread(p->mem_fd, buf, n, (off_t)address);

        return r == (ssize_t)n ? 0 : r < 0 ? -errno : -EFAULT;
}

int cop_mem_write(const struct cop_proc *p, uint64_t address, const void *buf, size_t n)
{
        ssize_t r = pwrite(p->mem_fd, buf, n, (off_t)address);

        return r == (ssize_t)n ? 0 : r < 0 ? -errno : -EFAULT;
}

int cop_wait_task(pid_t tid, int *ret_status)
{
        for (unsigned turn = 0;; turn++) {
                pid_t r = waitpid(tid, ret_status, __WALL | (turn < WAIT_TURNS ? WNOHANG : 0));
                if (r == tid)
                        return 0;
                if (r < 0 && errno != EINTR)
                        return -errno;
                if (turn < WAIT_TURNS)
                        sched_yield();
        }
}

/* Whose end is our caller's to wait for, as that of a tree's first process. */
static bool is_our_child(pid_t tid)
{
        _cleanup_free_ char *text = NULL;
        char path[32];

        snprintf(path, sizeof(path), "/proc/%d/status", tid);
        return cop_read_file(AT_FDCWD, path, 65536, &text, NULL, NULL) == 0 &&
               cop_procfs_field_u64(text, "Tgid", 10) == (uint64_t)tid &&
               cop_procfs_field_u64(text, "PPid", 10) == (uint64_t)getpid();
}

/* What is killed while it stands still cannot be let go of: it has ended, and its parent is told of it only when its tracer knows.  True:
 * so it is to be waited for. */
static bool was_killed(pid_t tid, int signal)
{
        return ptrace(PTRACE_DETACH, tid, 0, signal) < 0 && errno == ESRCH && !is_our_child(tid);
}

void cop_let_go(pid_t tid)
{
        bool killed = was_killed(tid, 0);
        int status;

        for (int i = 0; i < LET_GO_TRIES && killed; i++) {
                killed = waitpid(tid, &status, __WALL | WNOHANG) == 0;
                if (killed)
                        usleep(100);
        }
}

/* ---- finding the tree ---- */

static struct cop_proc *add_proc(struct cop_tree *tree, pid_t pid, uint32_t parent)
{
        struct cop_proc *bigger = reallocarray(tree->procs, tree->count + 1, sizeof(*bigger));
        char path[32];

        if (!bigger)
                return NULL;
        tree->procs = bigger;
        struct cop_proc *p = &tree->procs[tree->count];
        *p = (struct cop_proc){.pid = pid, .parent = parent, .pidfd = -EBADF, .mem_fd = -EBADF};
        snprintf(path, sizeof(path), "/proc/%d", pid);
        p->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        tree->count++;
        return p;
}

static struct cop_task *find_task(struct cop_proc *p, pid_t tid)
{
        for (size_t i = 0; i < p->task_count; i++)
                if (p->tasks[i].tid == tid)
                        return &p->tasks[i];
        return NULL;
}

static int open_task(const struct cop_proc *p, pid_t tid)
{
        char path[32];

        snprintf(path, sizeof(path), "task/%d", tid);
        return openat(p->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* As /proc tells it: Z when it has ended and waits for its parent, X when it is gone. */
static char task_state(const struct cop_proc *p, pid_t tid)
{
        struct cop_procfs_stat st;
        _cleanup_close_ int dir_fd = open_task(p, tid);

        return dir_fd < 0 || cop_procfs_stat(dir_fd, &st, NULL) < 0 ? 'X' : st.state;
}

/* Each thread may be traced by another, or by nobody. */
static bool task_traced(const struct cop_proc *p, pid_t tid)
{
        struct cop_procfs_status status;
        _cleanup_close_ int dir_fd = open_task(p, tid);

        return dir_fd >= 0 && cop_procfs_status(dir_fd, &status, NULL) == 0 && status.tracer > 0;
}

/* 1: one pass more is needed, since it is stopped, or has ended and may have left children to another. */
static int seize(struct cop_tree *tree, struct cop_proc *p, pid_t tid, struct cop_error *err)
{
        struct cop_task *bigger = reallocarray(p->tasks, p->task_count + 1, sizeof(*bigger));
        struct cop_procfs_stat st;

        if (!bigger)
                return cop_error_errno(err, ENOMEM, "stopping");
        p->tasks = bigger;
        p->tasks[p->task_count] = (struct cop_task){.tid = tid};
        int retries = 300, refused = 0;
        while (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0) {
                int saved = errno;
                char state = saved == ESRCH ? 'X' : task_state(p, tid);
                if (state == 'X')
                        return 1;
                if (state == 'Z') { /* of a thread: a debugger keeps it */
                        p->leader_ended = p->leader_ended || tid == p->pid;
                        return tid == p->pid;
                }
                bool traced = task_traced(p, tid);
                /* A memory watch (watch.h) holds a thread for less than that. */
                if (traced && retries-- > 0) {
                        usleep(1000);
                        continue;
                }
                /* Who traced it may have let it go, and it may have begun to end, between the two looks: it says no again then, or not. */
                if (!traced && saved == EPERM && refused++ < REFUSALS) {
                        usleep(100);
                        continue;
                }
                if (traced)
                        return cop_error_set(
                                err, EBUSY, COP_ERR_not_freezable,
                                "pid %d (%s) is traced by another process (a debugger or strace): cannot be frozen",
                                cop_pid_inside(tree->pidns_fd, p->pid), p->comm);
                if (saved ==
                    EPERM) /* the memory of what an owner thawed belongs to the owner's user namespace, not to the tree's */
                        return cop_error_set(
                                err, saved, COP_ERR_not_freezable,
                                "pid %d (%s) may not be traced (it is undumpable, and only root may trace such a "
                                "process that another than root has thawed): cannot be frozen",
                                cop_pid_inside(tree->pidns_fd, p->pid),
                                cop_procfs_stat(p->dir_fd, &st, NULL) == 0 ? st.comm : "?");
                return cop_error_errno(err, saved, "seizing thread %d of pid %d (%s)", tid, p->pid, p->comm);
        }
        p->tasks[p->task_count].seized = true;
        cop_waits_look(p, &p->tasks[p->task_count]);
        p->task_count++;
        if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 && errno != ESRCH)
                return cop_error_errno(err, errno, "interrupting thread %d", tid);
        return 1;
}

/* Children are listed per thread that made them. */
static int add_children(struct cop_tree *tree, size_t index, struct cop_error *err)
{
        _cleanup_free_ int *tids = NULL;
        size_t n = 0;
        int found = 0;
        int r = cop_procfs_numbers(tree->procs[index].dir_fd, "task", &tids, &n, NULL);

        if (r < 0)
                return 0; /* ended */
        for (size_t i = 0; i < n; i++) {
                _cleanup_free_ char *text = NULL;
                char path[64], *p, *end;
                snprintf(path, sizeof(path), "task/%d/children", tids[i]);
                if (cop_read_file(tree->procs[index].dir_fd, path, 1UL << 20, &text, NULL, NULL) < 0)
                        continue;
                for (p = text;; p = end) {
                        long pid = strtol(p, &end, 10);
                        bool known = false;
                        if (end == p)
                                break;
                        for (size_t k = 0; k < tree->count && !known; k++)
                                known = tree->procs[k].pid == pid;
                        if (known)
                                continue;
                        if (tree->count >= TASKS_MAX)
                                return cop_error_set(err, E2BIG, COP_ERR_not_freezable, "more than %d processes",
                                                     TASKS_MAX);
                        if (!add_proc(tree, (pid_t)pid, (uint32_t)index))
                                return cop_error_errno(err, ENOMEM, "stopping");
                        found++;
                }
        }
        return found;
}

/* A task that ended while it was being stopped. */
static void drop_task(struct cop_proc *p, pid_t tid)
{
        struct cop_task *t = find_task(p, tid);

        if (!t)
                return;
        free(t->xstate);
        size_t after = p->task_count - (size_t)(t - p->tasks) - 1;
        memmove(t, t + 1, after * sizeof(*t));
        p->task_count--;
}

static int note_stop(struct cop_proc *p, struct cop_task *t, int status)
{
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
                drop_task(p, t->tid);
                return 1;
        }
        if (status >> 16 != PTRACE_EVENT_STOP) {
                /* A signal on its way: let it be delivered; the interrupt stops the thread right after. */
                int sig = status >> 16 ? 0 : WSTOPSIG(status);
                if (ptrace(PTRACE_CONT, t->tid, 0, sig) < 0 && errno != ESRCH)
                        return -errno;
                return 0;
        }
        t->stopped = true;
        /* The sandbox's own filter need not allow what batches call; needs rights, so it may fail. */
        t->unconfined = ptrace(PTRACE_SETOPTIONS, t->tid, 0, COP_SUSPEND_SECCOMP) == 0;
        if (WSTOPSIG(status) != SIGTRAP) {
                t->group_stop = true;
                t->stop_signal = WSTOPSIG(status);
        }
        return 1;
}

/* It sleeps in a call that makes a process, where no signal wakes it: its vfork child, stopped by now, has to go on first. */
static bool waits_for_child(const struct cop_proc *p, pid_t tid)
{
        _cleanup_free_ char *text = NULL;
        char path[32];

        snprintf(path, sizeof(path), "task/%d/syscall", tid);
        if (task_state(p, tid) != 'D' || cop_read_word(p->dir_fd, path, &text, NULL) < 0)
                return false;
        long nr = strtol(text, NULL, 10);
        return nr == SYS_vfork || nr == SYS_clone || nr == SYS_clone3;
}

/* Threads stop in any order and some only when others move (exec, vfork): so never wait for one in particular. */
static int wait_stops(struct cop_tree *tree, usec_t deadline, struct cop_error *err)
{
        for (unsigned spins = 0;; spins++) {
                bool waiting = false, progress = false;
                struct cop_proc *who = NULL;
                pid_t tid = 0;
                for (size_t i = 0; i < tree->count; i++) {
                        struct cop_proc *p = &tree->procs[i];
                        for (size_t k = 0; k < p->task_count; k++) {
                                int status, r;
                                if (p->tasks[k].stopped)
                                        continue;
                                r = waitpid(p->tasks[k].tid, &status, __WALL | WNOHANG);
                                if (r < 0 && errno == ECHILD) {
                                        drop_task(p, p->tasks[k].tid);
                                        progress = true;
                                        break;
                                }
                                if (r > 0 && note_stop(p, &p->tasks[k], status) != 0) {
                                        progress = true;
                                        break; /* the list may have moved */
                                }
                                waiting = true;
                                who = p;
                                tid = p->tasks[k].tid;
                        }
                }
                if (!waiting && !progress)
                        return 0;
                if (cop_now(CLOCK_MONOTONIC) > deadline || (who && spins == VFORK_SPINS && waits_for_child(who, tid)))
                        return cop_error_set(
                                err, ETIMEDOUT, COP_ERR_not_freezable,
                                "pid %d does not stop (it waits in the kernel, perhaps for a vfork child): try again",
                                who ? cop_pid_inside(tree->pidns_fd, who->pid) : 0);
                if (!progress && spins > 20) {
                        struct timespec ts = {.tv_nsec = spins > 200 ? 1000000 : 20000};
                        nanosleep(&ts, NULL);
                }
        }
}

/* A task that stood still may have been killed by one that did not yet; 1: one pass more is needed. */
static int notice_killed(struct cop_tree *tree)
{
        int found = 0;

        for (size_t i = 0; i < tree->count; i++) {
                struct cop_proc *p = &tree->procs[i];
                for (size_t k = p->task_count; k-- > 0;) {
                        int status;
                        if (waitpid(p->tasks[k].tid, &status, __WALL | WNOHANG) > 0 && !WIFSTOPPED(status)) {
                                drop_task(p, p->tasks[k].tid);
                                found = 1;
                        }
                }
        }
        return found;
}

/* tasks[0] is the leader, also when pids have begun anew and its threads have smaller ones: it is what the image begins with, and a
 * leader's end is told only when all its threads were reaped. */
static void put_first(int *tids, size_t n, pid_t leader)
{
        for (size_t i = 1; i < n; i++)
                if (tids[i] == leader) {
                        memmove(tids + 1, tids, i * sizeof(*tids));
                        tids[0] = leader;
                        return;
                }
}

static int scan_pass(struct cop_tree *tree, struct cop_error *err)
{
        int found = 0;

        for (size_t i = 0; i < tree->count; i++) {
                _cleanup_free_ int *tids = NULL;
                size_t n = 0;
                if (cop_procfs_numbers(tree->procs[i].dir_fd, "task", &tids, &n, NULL) == 0) {
                        put_first(tids, n, tree->procs[i].pid);
                        for (size_t k = 0; k < n; k++) {
                                struct cop_proc *p = &tree->procs[i];
                                if (find_task(p, tids[k]) || (p->leader_ended && tids[k] == p->pid))
                                        continue;
                                int r = seize(tree, p, tids[k], err);
                                if (r < 0)
                                        return r;
                                found += r;
                        }
                }
                int r = add_children(tree, i, err);
                if (r < 0)
                        return r;
                found += r;
        }
        return found;
}

/* What has ended is a zombie, unless its parent took notice before it was stopped itself. */
static void drop_ended(struct cop_tree *tree)
{
        for (size_t i = 1; i < tree->count; i++) {
                struct cop_proc *p = &tree->procs[i];
                if (p->task_count > 0)
                        continue;
                p->zombie = task_state(p, p->pid) == 'Z';
                if (p->zombie)
                        continue;
                cop_close(p->dir_fd);
                cop_close(p->pidfd);
                free(p->tasks);
                for (size_t k = i + 1; k < tree->count; k++)
                        if (tree->procs[k].parent != IMG_NONE && tree->procs[k].parent >= i)
                                tree->procs[k].parent = tree->procs[k].parent == i ? 0 : tree->procs[k].parent - 1;
                memmove(p, p + 1, (tree->count - i - 1) * sizeof(*p));
                tree->count--;
                i--;
        }
}

/* A thread that has ended has no memory and no descriptors: what the process has is seen through another one. */
static int look_through(struct cop_proc *p, struct cop_error *err)
{
        struct cop_procfs_stat st;
        char path[32];

        p->living = p->task_count > 0 ? p->tasks[0].tid : p->pid;
        p->leader_ended = p->living != p->pid;
        if (!p->leader_ended)
                return 0;
        int r = cop_procfs_stat(p->dir_fd, &st, err);
        if (r < 0)
                return r;
        p->exit_signal = st.exit_signal;
        p->exit_code = st.exit_code;
        memcpy(p->comm, st.comm, sizeof(p->comm));
        cop_close(p->dir_fd);
        cop_close(p->pidfd);
        snprintf(path, sizeof(path), "/proc/%d", p->living);
        p->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        p->pidfd = (int)syscall(SYS_pidfd_open, p->living, COP_PIDFD_THREAD);
        return p->dir_fd < 0 || p->pidfd < 0 ? cop_error_errno(err, errno, "opening thread %d", p->living) : 0;
}

static int identify(struct cop_tree *tree, struct cop_error *err)
{
        for (size_t i = 0; i < tree->count; i++) {
                struct cop_proc *p = &tree->procs[i];
                struct cop_procfs_stat st;
                int r = look_through(p, err);
                if (r >= 0)
                        r = cop_procfs_stat(p->dir_fd, &st, err);
                if (r < 0)
                        return r;
                if (!p->leader_ended)
                        memcpy(p->comm, st.comm, sizeof(p->comm));
                p->nspid = cop_pid_inside(tree->pidns_fd, p->pid);
                /* The parent may have ended since: the kernel says who it is now. */
                for (size_t k = 0; k < i && i > 0; k++)
                        if (tree->procs[k].pid == st.ppid)
                                p->parent = (uint32_t)k;
                if (p->zombie)
                        continue;
                p->mem_fd = openat(p->dir_fd, "mem", O_RDWR | O_CLOEXEC);
                if (p->mem_fd < 0 || p->pidfd < 0)
                        return cop_error_errno(err, errno, "opening the memory of pid %d (%s)", p->nspid, p->comm);
                for (size_t k = 0; k < p->task_count; k++) {
                        p->tasks[k].nstid = cop_pid_inside(tree->pidns_fd, p->tasks[k].tid);
                        p->tasks[k].slot = 4096 + k * COP_SLOT_SIZE;
                        if (p->tasks[k].nstid == 0)
                                return cop_error_set(err, ESRCH, COP_ERR_internal, "thread %d is not in the namespace",
                                                     p->tasks[k].tid);
                }
        }
        if (tree->procs[0].nspid != 1)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "pid %d is not the first process of a pid namespace", tree->procs[0].pid);
        return 0;
}

static int stop_once(pid_t root, usec_t deadline, struct cop_tree *ret, struct cop_error *err)
{
        struct cop_tree tree = {.pidns_fd = -EBADF};
        int r;

        if (!add_proc(&tree, root, IMG_NONE)) {
                r = cop_error_errno(err, ENOMEM, "stopping");
                goto fail;
        }
        if (tree.procs[0].dir_fd >= 0)
                tree.pidns_fd = openat(tree.procs[0].dir_fd, "ns/pid", O_RDONLY | O_CLOEXEC);
        if (tree.pidns_fd < 0) {
                r = cop_error_errno(err, tree.procs[0].dir_fd < 0 ? ESRCH : errno, "opening process %d", root);
                goto fail;
        }
        do {
                r = scan_pass(&tree, err);
                if (r < 0)
                        goto fail;
                int w = wait_stops(&tree, deadline, err);
                if (w < 0) {
                        r = w;
                        goto fail;
                }
        } while (r > 0 || notice_killed(&tree) > 0);
        drop_ended(&tree);
        r = identify(&tree, err);
        if (r < 0)
                goto fail;
        *ret = tree;
        return 0;
fail:
        cop_tree_resume(&tree);
        cop_tree_done(&tree);
        return r;
}

/* Threads that do not stop usually wait for a vfork child that was stopped: all go on for a moment, then again. */
int cop_tree_stop(pid_t root, struct cop_tree *ret, struct cop_error *err)
{
        usec_t end = cop_usec_add(cop_now(CLOCK_MONOTONIC), STOP_TIMEOUT), patience = 100 * USEC_PER_MSEC;

        for (;;) {
                usec_t now = cop_now(CLOCK_MONOTONIC);
                int r = stop_once(root, MIN_OF(end, now + patience), ret, err);
                if (r != -ETIMEDOUT || cop_now(CLOCK_MONOTONIC) >= end)
                        return r;
                usleep(1000);
                patience *= 2;
        }
}

/* ---- registers ---- */

static int read_task(struct cop_task *t, struct cop_error *err)
{
        static size_t guess = 4096;
        struct iovec iov;

        if (ptrace(PTRACE_GETREGS, t->tid, 0, &t->regs) < 0)
                return cop_error_errno(err, errno, "reading the registers of thread %d", t->tid);
        for (;;) {
                char *bigger = realloc(t->xstate, guess);
                if (!bigger)
                        return cop_error_errno(err, ENOMEM, "reading the vector state");
                t->xstate = bigger;
                iov = (struct iovec){.iov_base = t->xstate, .iov_len = guess};
                if (ptrace(PTRACE_GETREGSET, t->tid, NT_X86_XSTATE, &iov) < 0)
                        return cop_error_errno(err, errno, "reading the vector state of thread %d", t->tid);
                if (iov.iov_len < guess)
                        break;
                guess *= 2;
        }
        t->xstate_size = iov.iov_len;
        return 0;
}

int cop_tree_read_registers(struct cop_tree *tree, struct cop_error *err)
{
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        struct cop_task *t = &tree->procs[i].tasks[k];
                        if (ptrace((enum __ptrace_request)PTRACE_GETSIGMASK, t->tid, 8, &t->sigmask) < 0)
                                return cop_error_errno(err, errno, "reading the signal mask of thread %d", t->tid);
                        int r = read_task(t, err);
                        if (r < 0)
                                return r;
                        cop_leave_sequence(&tree->procs[i], t);
                }
        return 0;
}

/* ---- batches ---- */

uint64_t cop_vdso_syscall(void)
{
        const unsigned char *vdso = (const unsigned char *)getauxval(AT_SYSINFO_EHDR);

        for (size_t i = 0; vdso && i < 8192 - 1; i++)
                if (vdso[i] == 0x0f && vdso[i + 1] == 0x05)
                        return i;
        return 0;
}

void cop_give_stop_back(const struct cop_task *t)
{
        if (t->took_stop)
                (void)syscall(SYS_tkill, t->tid, SIGSTOP);
}

/* Another stop than the awaited one: an event (a group stop that began), which changes nothing, or a SIGSTOP. */
static void note_signal(struct cop_task *t, int status)
{
        t->took_stop = t->took_stop || (status >> 16 == 0 && WSTOPSIG(status) == SIGSTOP);
}

static int let_run(const struct cop_task *t, int request, struct cop_error *err)
{
        return ptrace((enum __ptrace_request)request, t->tid, 0, 0) < 0
                       ? cop_error_errno(err, errno, "running code in thread %d", t->tid)
                       : 0;
}

static int await_trap(struct cop_task *t, int request, struct cop_error *err)
{
        int status;

        for (;;) {
                int r = cop_wait_task(t->tid, &status);
                if (r < 0)
                        return cop_error_errno(err, -r, "waiting for thread %d", t->tid);
                if (!WIFSTOPPED(status))
                        return cop_error_set(err, ESRCH, COP_ERR_internal, "thread %d ended while it was being frozen",
                                             t->tid);
                if (status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP)
                        return 0;
                note_signal(t, status);
                r = let_run(t, request, err);
                if (r < 0)
                        return r;
        }
}

int cop_run_to_trap(struct cop_task *t, int request, struct cop_error *err)
{
        int r = let_run(t, request, err);

        return r < 0 ? r : await_trap(t, request, err);
}

int cop_run_to_mark(struct cop_task *t, struct cop_error *err)
{
        struct user_regs_struct regs;
        bool there = false;

        while (!there) {
                int r = cop_run_to_trap(t, PTRACE_SYSCALL, err);
                if (r < 0)
                        return r;
                if (ptrace(PTRACE_GETREGS, t->tid, 0, &regs) < 0)
                        return cop_error_errno(err, errno, "reading the registers of thread %d", t->tid);
                there = regs.orig_rax == SYS_getpid && regs.rdi == COP_MARK;
        }
        return cop_run_to_trap(t, PTRACE_SYSCALL, err); /* its entry before, now the exit */
}

static bool holds_trap(pid_t tid, uint32_t flags)
{
        struct __ptrace_peeksiginfo_args args = {.flags = flags, .nr = 8};
        siginfo_t list[8];
        long n;

        while ((n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, list)) > 0) {
                for (long i = 0; i < n; i++)
                        if (list[i].si_signo == SIGTRAP)
                                return true;
                args.off += (uint64_t)n;
        }
        return false;
}

bool cop_trap_pending(pid_t tid)
{
        return holds_trap(tid, 0) || holds_trap(tid, PTRACE_PEEKSIGINFO_SHARED);
}

static int block_signals(struct cop_task *t, bool trap_too, struct cop_error *err)
{
        uint64_t mask = trap_too ? ~0ULL : ~(1ULL << (SIGTRAP - 1));

        if (ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, t->tid, 8, &mask) < 0)
                return cop_error_errno(err, errno, "blocking signals of thread %d", t->tid);
        return 0;
}

/* What a process says of itself may not be true any more, and a fault there would be the program's. */
static int check_instruction(const struct cop_proc *p, const struct cop_task *t, struct cop_error *err)
{
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, t->tid, p->syscall_insn, 0);

        return errno == 0 && (word & 0xffff) == SYSCALL_BYTES
                       ? 0
                       : cop_error_set(err, ENOEXEC, COP_ERR_not_freezable,
                                       "thread %d has no system call instruction at %#llx", t->tid,
                                       (unsigned long long)p->syscall_insn);
}

uint64_t cop_find_syscall(const struct cop_proc *p, uint64_t start, uint64_t n)
{
        unsigned char buf[4097];

        for (uint64_t at = start; at < start + n; at += 4096) {
                size_t length = MIN_OF(start + n - at, sizeof(buf));
                if (cop_mem_read(p, at, buf, length) < 0)
                        continue;
                for (size_t i = 0; i + 1 < length; i++)
                        if (buf[i] == (SYSCALL_BYTES & 0xff) && buf[i + 1] == SYSCALL_BYTES >> 8)
                                return at + i;
        }
        return 0;
}

static int remote_request(const struct cop_proc *p)
{
        return p->no_traps ? PTRACE_SYSCALL : PTRACE_SINGLESTEP;
}

int cop_remote_begin(struct cop_proc *p, struct cop_task *t, long nr, const uint64_t arg[6], struct cop_error *err)
{
        struct user_regs_struct regs = t->regs;
        int r = check_instruction(p, t, err);

        if (r == 0)
                r = block_signals(t, p->no_traps, err);
        if (r < 0)
                return r;
        regs.rip = p->syscall_insn;
        regs.rax = (uint64_t)nr;
        regs.orig_rax = (uint64_t)-1;
        regs.rdi = arg[0];
        regs.rsi = arg[1];
        regs.rdx = arg[2];
        regs.r10 = arg[3];
        regs.r8 = arg[4];
        regs.r9 = arg[5];
        regs.eflags &= ~0x100ULL;
        if (ptrace(PTRACE_SETREGS, t->tid, 0, &regs) < 0)
                return cop_error_errno(err, errno, "setting the registers of thread %d", t->tid);
        return let_run(t, remote_request(p), err);
}

int cop_remote_end(struct cop_proc *p, struct cop_task *t, int64_t *ret_result, struct cop_error *err)
{
        struct user_regs_struct regs;
        int r = await_trap(t, remote_request(p), err);

        if (r == 0 && p->no_traps)
                r = cop_run_to_trap(t, PTRACE_SYSCALL, err); /* the entry before, now the exit */
        if (r < 0)
                return r;
        if (ptrace(PTRACE_GETREGS, t->tid, 0, &regs) < 0)
                return cop_error_errno(err, errno, "reading the registers of thread %d", t->tid);
        *ret_result = (int64_t)regs.rax;
        return 0;
}

int cop_remote_syscall(struct cop_proc *p, struct cop_task *t, long nr, const uint64_t arg[6], int64_t *ret_result,
                       struct cop_error *err)
{
        int r = cop_remote_begin(p, t, nr, arg, err);

        return r < 0 ? r : cop_remote_end(p, t, ret_result, err);
}

int cop_leave_vdso(const struct cop_proc *p, struct cop_task *t, uint64_t start, uint64_t end, struct cop_error *err)
{
        int64_t result = (int64_t)t->regs.rax;
        bool call = (int64_t)t->regs.orig_rax >= 0 && result < 0 && result >= -4095; /* perhaps to be started again */
        int r = 0;

        if (t->regs.rip < start || t->regs.rip >= end || call || p->no_traps)
                return 0;
        r = block_signals(t, false, err);
        for (int i = 0; r == 0 && i < VDSO_STEPS && t->regs.rip >= start && t->regs.rip < end; i++) {
                r = cop_run_to_trap(t, PTRACE_SINGLESTEP, err);
                if (r == 0 && ptrace(PTRACE_GETREGS, t->tid, 0, &t->regs) < 0)
                        r = cop_error_errno(err, errno, "reading the registers of thread %d", t->tid);
        }
        return r == 0 ? read_task(t, err) : r;
}

int cop_batch_begin(struct cop_proc *p, struct cop_error *err)
{
        size_t size = 4096 + p->task_count * COP_SLOT_SIZE;
        uint64_t arg[6] = {0, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0};
        int64_t result, code = 0;

        int r = cop_remote_syscall(p, &p->tasks[0], SYS_mmap, arg, &result, err);
        if (r == 0 && result == -EACCES) { /* PR_SET_MDWE: what may be written is not executed */
                arg[2] = PROT_READ | PROT_WRITE;
                r = cop_remote_syscall(p, &p->tasks[0], SYS_mmap, arg, &result, err);
                const uint64_t first[6] = {(uint64_t)result,      4096,
                                           PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                                           (uint64_t)-1,          0};
                if (r == 0 && result > 0)
                        r = cop_remote_syscall(p, &p->tasks[0], SYS_mmap, first, &code, err);
        }
        if (r < 0)
                return r;
        if ((uint64_t)result > -4096ULL || code < 0)
                return cop_error_errno(err, (int)-(code < 0 ? code : result), "mapping memory in pid %d (%s)", p->nspid,
                                       p->comm);
        p->remote = (uint64_t)result;
        p->remote_size = size;
        r = cop_mem_write(p, p->remote, cop_tramp_start, (size_t)(cop_tramp_end - cop_tramp_start));
        return r < 0 ? cop_error_errno(err, -r, "placing code in pid %d (%s)", p->nspid, p->comm) : 0;
}

int cop_batch_start(struct cop_proc *p, struct cop_task *t, struct cop_op *ops, size_t n, const void *data,
                    size_t data_size, struct cop_error *err)
{
        struct user_regs_struct regs = t->regs;
        int r = 0;

        if (n + 1 > COP_SLOT_OPS || data_size > COP_SLOT_SIZE - COP_SLOT_DATA)
                return cop_error_set(err, EINVAL, COP_ERR_internal, "a batch is too long");
        ops[n] = p->no_traps ? cop_op_mark() : (struct cop_op){.flags = COP_OP_STOP};
        r = cop_mem_write(p, p->remote + t->slot, ops, (n + 1) * sizeof(*ops));
        if (r == 0 && data)
                r = cop_mem_write(p, cop_batch_data(p, t, 0), data, data_size);
        if (r < 0)
                return cop_error_errno(err, -r, "placing a batch in thread %d", t->tid);
        r = block_signals(t, p->no_traps, err);
        if (r < 0)
                return r;
        regs.rip = p->remote;
        regs.r12 = p->remote + t->slot;
        regs.orig_rax = (uint64_t)-1;
        regs.eflags &= ~0x100ULL;
        if (ptrace(PTRACE_SETREGS, t->tid, 0, &regs) < 0 ||
            (!p->no_traps && ptrace(PTRACE_CONT, t->tid, 0, 0) < 0)) /* else it runs when it is waited for */
                return cop_error_errno(err, errno, "running code in thread %d", t->tid);
        return 0;
}

static int await_stop(struct cop_task *t, struct cop_error *err)
{
        int status;

        for (;;) {
                int r = cop_wait_task(t->tid, &status);
                if (r < 0 || !WIFSTOPPED(status))
                        return cop_error_set(err, ESRCH, COP_ERR_internal, "thread %d ended while it was being frozen",
                                             t->tid);
                if (status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP)
                        return 0;
                note_signal(t, status);
                if (ptrace(PTRACE_CONT, t->tid, 0, 0) < 0)
                        return cop_error_errno(err, errno, "running code in thread %d", t->tid);
        }
}

int cop_batch_wait(struct cop_proc *p, struct cop_task *t, struct cop_op *ops, size_t n, void *data, size_t data_size,
                   struct cop_error *err)
{
        int r = p->no_traps ? cop_run_to_mark(t, err) : await_stop(t, err);

        if (r < 0)
                return r;
        r = cop_mem_read(p, p->remote + t->slot, ops, n * sizeof(*ops));
        if (r == 0 && data)
                r = cop_mem_read(p, cop_batch_data(p, t, 0), data, data_size);
        return r < 0 ? cop_error_errno(err, -r, "reading the results of thread %d", t->tid) : 0;
}

/* ---- going on, or not ---- */

static void unmap_remote(struct cop_proc *p)
{
        uint64_t arg[6] = {p->remote, p->remote_size};
        int64_t result;

        if (p->remote && p->task_count > 0)
                (void)cop_remote_syscall(p, &p->tasks[0], SYS_munmap, arg, &result, NULL);
        p->remote = 0;
}

/* A thread that waits for its vfork child cannot stop before the child goes on, so those that did not stop are waited for
 * last, when all others run again; and those that have been killed, a leader when its threads are known to have ended. */
static void let_go_late(struct cop_tree *tree)
{
        usec_t deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), STOP_TIMEOUT);

        for (bool waiting = true; waiting && cop_now(CLOCK_MONOTONIC) < deadline;) {
                waiting = false;
                for (size_t i = 0; i < tree->count; i++)
                        for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                                struct cop_task *t = &tree->procs[i].tasks[k];
                                int status;
                                if (!t->seized)
                                        continue;
                                pid_t r = waitpid(t->tid, &status, __WALL | WNOHANG);
                                if (r > 0 && WIFSTOPPED(status))
                                        t->seized = was_killed(t->tid, status >> 16 == 0 ? WSTOPSIG(status) : 0);
                                else if (r != 0)
                                        t->seized = false;
                                waiting = waiting || t->seized;
                        }
                if (waiting)
                        usleep(1000);
        }
}

/* A stop that came to nothing must not be seen as an EINTR either. */
static void undo_interrupt(struct cop_task *t)
{
        struct user_regs_struct regs;

        if (ptrace(PTRACE_GETREGS, t->tid, 0, &regs) == 0 && (int64_t)regs.rax == -EINTR &&
            cop_rewind_interrupted(&regs))
                ptrace(PTRACE_SETREGS, t->tid, 0, &regs);
}

void cop_tree_resume(struct cop_tree *tree)
{
        for (size_t i = 0; i < tree->count; i++)
                unmap_remote(&tree->procs[i]);
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        struct cop_task *t = &tree->procs[i].tasks[k];
                        if (!t->seized)
                                continue;
                        if (!t->stopped)
                                continue;
                        if (t->xstate) { /* registers were read, and perhaps changed */
                                ptrace(PTRACE_SETREGS, t->tid, 0, &t->regs);
                                ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, t->tid, 8, &t->sigmask);
                        } else
                                undo_interrupt(t);
                        cop_give_stop_back(t);
                        t->seized = was_killed(t->tid, 0);
                }
        let_go_late(tree);
}

void cop_tree_kill(struct cop_tree *tree)
{
        if (tree->count == 0)
                return;
        /* The end of the first process ends its namespace, and waits for all others to be gone: tracees must be reaped. */
        for (size_t i = 0; i < tree->count; i++)
                if (!tree->procs[i].zombie)
                        kill(tree->procs[i].pid, SIGKILL);
        for (size_t i = tree->count; i-- > 0;) {
                struct cop_proc *p = &tree->procs[i];
                for (size_t k = p->task_count; k-- > 0;) { /* a leader ends last */
                        int status;
                        do
                                if (cop_wait_task(p->tasks[k].tid, &status) < 0)
                                        break;
                        while (!WIFEXITED(status) && !WIFSIGNALED(status));
                        p->tasks[k].seized = false;
                }
        }
}

void cop_tree_done(struct cop_tree *tree)
{
        for (size_t i = 0; i < tree->count; i++) {
                struct cop_proc *p = &tree->procs[i];
                for (size_t k = 0; k < p->task_count; k++)
                        free(p->tasks[k].xstate);
                free(p->tasks);
                cop_close(p->dir_fd);
                cop_close(p->pidfd);
                cop_close(p->mem_fd);
        }
        free(tree->procs);
        cop_close(tree->pidns_fd);
        *tree = (struct cop_tree){.pidns_fd = -EBADF};
}
