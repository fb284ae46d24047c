/* The engine's side of a thaw: forks the helper, waits until every thread has parked, gives registers, lets go. */
#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/child_call.h"
#include "freezer/freezer.h"
#include "freezer/guest.h"
#include "freezer/procfs.h"
#include "freezer/restore.h"
#include "freezer/restore_pass.h"
#include "freezer/restore_sock.h"
#include "freezer/tracee.h"
#include "freezer/waits.h"
#include "freezer/watch.h"

#define THAW_TIMEOUT (30 * USEC_PER_SEC)
#define NEAR_MAX 4 /* threads */

struct thaw_thread {
        pid_t tid; /* here */
        uint32_t proc, thread;
        bool seized;
        bool unconfined;              /* by seccomp, while it is seized */
        bool near;                    /* on our processor, until it is let go */
        cpu_set_t cpus;               /* if so: those it may have */
        struct user_regs_struct regs; /* to be given */
};

struct thaw {
        struct cop_restore restore;
        struct cop_image *image;     /* owned */
        struct cop_birth *births;    /* owned */
        struct thaw_thread *threads; /* owned */
        size_t thread_count;
        pid_t root;
        int pidfd, pidns_fd;
        struct cop_watch *watch; /* owned until handed over */
        uint32_t watched;        /* processes it is of */
        uint64_t syscall_offset; /* of a syscall instruction in the vdso */
};

static int make_shared(struct thaw *t, struct cop_error *err)
{
        struct cop_restore *r = &t->restore;
        int fd = (int)syscall(SYS_memfd_create, "coppice-thaw", MFD_CLOEXEC);

        r->shared_fd = fd;
        r->shared_size = sizeof(*r->shared) + r->image->count[IMG_PROCS] * sizeof(r->shared->place[0]) +
                         r->image->count[IMG_FILES];
        if (fd < 0 || ftruncate(fd, (off_t)r->shared_size) < 0)
                return cop_error_errno(err, errno, "making shared memory");
        void *map = mmap(NULL, r->shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
                return cop_error_errno(err, errno, "making shared memory");
        r->shared = map;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->pass_fd) < 0)
                return cop_error_errno(err, errno, "making a socket for the tree");
        cop_restore_beside_choose(r);
        return 0;
}

static int plan_births(struct thaw *t, struct cop_error *err)
{
        const struct img_proc *procs = t->image->table[IMG_PROCS];
        uint32_t n = t->image->count[IMG_PROCS], index = 0;
        const char *why;

        t->restore.births = t->births = malloc((n + 1UL) * sizeof(*t->births));
        int r = t->births ? cop_births_plan(procs, n, t->births, &index, &why) : -ENOMEM;
        if (r == -ENOMEM)
                return cop_error_errno(err, ENOMEM, "planning the tree");
        return r < 0 ? cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "the memory image is damaged: process %d %s",
                                     procs[index].pid, why)
                     : 0;
}

/* ---- waiting ---- */

static int reported(struct thaw *t, struct cop_error *err)
{
        struct cop_restore_shared *s = t->restore.shared;

        for (int i = 0; i < 1000 && __atomic_load_n(&s->failed, __ATOMIC_SEQ_CST) == 1; i++)
                usleep(100);
        if (s->failed == 2) {
                if (err)
                        *err = s->error;
                return -s->error.errnum;
        }
        return 0;
}

static int describe_failed_op(struct thaw *t, struct cop_error *err)
{
        const struct cop_tramp_control *c = &t->restore.shared->control;
        uint32_t index = 0;

        for (uint32_t i = 0; i < t->image->count[IMG_PROCS]; i++) {
                const struct cop_restore_place *p = &t->restore.shared->place[i];
                if (c->failed_op >= p->region && c->failed_op < p->region + p->region_size)
                        index = i;
        }
        uint64_t offset = c->failed_op - t->restore.shared->place[index].region;
        const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, index);
        if (c->failed_result < 0 && c->failed_result > -4096)
                return cop_error_set(err, (int)-c->failed_result, COP_ERR_start_failed,
                                     "rebuilding process %d: system call %d at +%#llx of the table failed: %s", p->pid,
                                     (int)t->restore.shared->control.failed_nr, (unsigned long long)offset,
                                     strerror((int)-c->failed_result));
        return cop_error_set(err, EIO, COP_ERR_start_failed,
                             "rebuilding process %d: step at +%#llx of the table gave %#llx", p->pid,
                             (unsigned long long)offset, (unsigned long long)c->failed_result);
}

static int check_failed(struct thaw *t, struct cop_error *err)
{
        int r = reported(t, err);

        if (r < 0)
                return r;
        if (__atomic_load_n(&t->restore.shared->control.failed, __ATOMIC_SEQ_CST))
                return describe_failed_op(t, err);
        return 0;
}

static int be_helper(void *userdata)
{
        struct cop_error err = COP_ERROR_NULL;

        return cop_restore_start(userdata, &err);
}

static bool has_threads(void)
{
        struct stat st;

        return stat("/proc/self/task", &st) < 0 || st.st_nlink != 2 + 1;
}

/* It clones the first process, which has a copy of our memory, so it need not have one itself: 70 us less.  Until it has ended we leave
 * libc's data as they are; other threads might not, and what they have locked would stay so in the copy.  Nothing of the tree runs yet,
 * whose root could trace it. */
static pid_t make_helper(struct cop_restore *r, char *stack)
{
        if (stack && !has_threads())
                return cop_child_start_apart(stack, be_helper, r);
        pid_t pid = fork();
        if (pid == 0)
                _exit(be_helper(r));
        return pid < 0 ? -errno : pid;
}

/* Beside it we open files. */
static int run_helper(struct cop_restore *r, int *ret_status, struct cop_error *err)
{
        _cleanup_free_ char *stack = aligned_alloc(4096, COP_CHILD_STACK);
        int dumpable = prctl(PR_GET_DUMPABLE);
        cpu_set_t others;
        bool apart = cop_other_cpus(&others);

        r->processors = apart ? (uint32_t)CPU_COUNT(&others) + 1 : 1;
        cop_all_cpus(&r->cpus);
        pid_t pid = make_helper(r, stack);
        if (pid < 0)
                return cop_error_errno(err, -pid, "starting a thaw");
        if (apart) /* while we are at work it might wait for this processor, though another is idle */
                (void)sched_setaffinity(pid, sizeof(others), &others);
        cop_restore_beside_open(r);
        int waited = cop_wait_task(pid, ret_status);
        if (prctl(PR_GET_DUMPABLE) != dumpable) /* by the helper's change of user, in memory that is shared */
                prctl(PR_SET_DUMPABLE, dumpable);
        return waited < 0 ? cop_error_errno(err, -waited, "starting a thaw") : 0;
}

static int start_helper(struct thaw *t, struct cop_error *err)
{
        int status = 0, r = run_helper(&t->restore, &status, err);
        char path[64];

        if (r < 0)
                return r;
        /* A hypervisor has to answer for the CPU, 6 us for each of eight questions: while the tree is made. */
        r = t->restore.request->image ? 0 : cop_image_check_host(t->image->header, err);
        if (r == 0)
                r = check_failed(t, err);
        if (r < 0)
                return r;
        t->root = (pid_t)t->restore.shared->root_pid;
        if (t->root <= 0)
                return cop_error_set(err, EIO, COP_ERR_start_failed, "the thaw's helper ended (status %#x)", status);
        t->pidfd = (int)syscall(SYS_pidfd_open, t->root, 0);
        if (t->pidfd < 0)
                return cop_error_errno(err, errno, "opening the first process");
        snprintf(path, sizeof(path), "/proc/%d/ns/pid", t->root);
        t->pidns_fd = open(path, O_RDONLY | O_CLOEXEC);
        return t->pidns_fd < 0 ? cop_error_errno(err, errno, "opening the pid namespace") : 0;
}

/* A process of the tree that died (of a signal) is a zombie now that nobody expects. */
static bool somebody_died(const struct thaw *t)
{
        char path[64];

        for (uint32_t i = 0; i < t->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, i);
                pid_t pid = p->state == IMG_ZOMBIE || p->leader_ended ? 0 : cop_pid_outside(t->pidns_fd, p->pid);
                struct cop_procfs_stat st;
                snprintf(path, sizeof(path), "/proc/%d", pid);
                _cleanup_close_ int dir = pid > 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -EBADF;
                if (dir >= 0 && cop_procfs_stat(dir, &st, NULL) == 0 && st.state == 'Z')
                        return true;
        }
        return false;
}

static void make_room(struct thaw *t)
{
        struct cop_restore_shared *s = t->restore.shared;

        if (!__atomic_load_n(&s->room.asked, __ATOMIC_SEQ_CST))
                return;
        _cleanup_close_ int fd = (int)syscall(SYS_pidfd_getfd, t->pidfd, s->room.fd, 0);
        if (fd >= 0)
                cop_socket_set_buffer(fd, SO_SNDBUF, s->room.size);
        __atomic_store_n(&s->room.asked, 0, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->room.asked, FUTEX_WAKE, INT32_MAX, NULL);
}

static void pass_on_bound(struct thaw *t)
{
        if (!__atomic_exchange_n(&t->restore.shared->bound, 0, __ATOMIC_SEQ_CST))
                return;
        if (t->restore.request->bound)
                t->restore.request->bound(t->restore.request->userdata);
}

/* A duplicate of a thread's descriptor, or -1 with errno. */
static int take_fd(pid_t tid, int fd)
{
        _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, tid, COP_PIDFD_THREAD);

        return pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

void cop_await_change(const uint32_t *word, uint32_t seen, bool look)
{
        struct timespec ts = {.tv_nsec = 20000000};
        usec_t end = look ? cop_usec_add(cop_now(CLOCK_MONOTONIC), COP_LOOK) : 0;

        while (look && __atomic_load_n(word, __ATOMIC_SEQ_CST) == seen && cop_now(CLOCK_MONOTONIC) < end)
                sched_yield(); /* others may have better things to do */
        if (!look)
                syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

/* Those that have come. */
static int take_watches(struct thaw *t, struct cop_error *err)
{
        struct cop_passed p;
        int r;

        while ((r = cop_pass_receive(t->restore.pass_fd[COP_PASS_ENGINE], &p)) == 0) {
                if (!t->watch)
                        r = cop_watch_new(t->image, &t->watch, err);
                for (size_t i = 0; i < p.count; i++) {
                        if (r < 0)
                                close(p.fd[i]);
                        else if ((r = cop_watch_add(t->watch, p.fd[i], err)) == 0)
                                t->watched++;
                }
                if (r < 0)
                        return r;
        }
        return r == -EAGAIN ? 0 : cop_error_errno(err, -r, "taking the memory watch");
}

static int wait_parked(struct thaw *t, usec_t timeout, struct cop_error *err)
{
        uint32_t *word = &t->restore.shared->control.parked;
        uint32_t want = t->image->count[IMG_THREADS], seen = 0; /* what came before this wait is news, too */
        cpu_set_t cpus;
        bool may_look = cop_other_cpus(&cpus), look = false;
        usec_t deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), timeout);
        unsigned turns = 0;

        while (COP_PARKED(seen) < want) {
                siginfo_t info = {0};
                cop_await_change(word, seen, look);
                uint32_t now = __atomic_load_n(word, __ATOMIC_SEQ_CST);
                /* From the first news on little is left of some table, as long as there is always more. */
                look = may_look && now != seen && (look || COP_NEWS(now) != COP_NEWS(seen));
                seen = now;
                make_room(t);
                pass_on_bound(t);
                int r = check_failed(t, err);
                if (r == 0)
                        r = take_watches(t, err);
                if (r < 0)
                        return r;
                if (waitid(P_PID, (id_t)t->root, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 &&
                    info.si_pid == t->root) {
                        r = check_failed(t, err);
                        return r < 0 ? r
                                     : cop_error_set(err, EIO, COP_ERR_start_failed,
                                                     "the first process ended while it was rebuilt (%s %d)",
                                                     info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
                }
                if (++turns % 10 == 0 && somebody_died(t)) {
                        r = check_failed(t, err);
                        return r < 0 ? r
                                     : cop_error_set(err, EIO, COP_ERR_start_failed,
                                                     "a process died while it was rebuilt");
                }
                if (cop_now(CLOCK_MONOTONIC) > deadline)
                        return cop_error_set(err, ETIMEDOUT, COP_ERR_start_failed,
                                             "the tree was not rebuilt in time (%u of %u threads)", COP_PARKED(seen),
                                             want);
        }
        int r = check_failed(t, err); /* of a task that does not park */
        if (r == 0)
                r = take_watches(t, err);
        return r == 0 && t->watched != t->restore.shared->watched
                       ? cop_error_set(err, EIO, COP_ERR_internal, "%u of %u memory watches have come", t->watched,
                                       t->restore.shared->watched)
                       : r;
}

/* ---- registers ---- */

static int find_threads(struct thaw *t, struct cop_error *err)
{
        t->threads = calloc(t->image->count[IMG_THREADS], sizeof(*t->threads));
        if (!t->threads)
                return cop_error_errno(err, errno, "finding the threads");
        for (uint32_t i = 0; i < t->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, i);
                for (uint32_t k = 0; k < p->threads; k++) {
                        pid_t tid = IMG_RECORD(t->image, IMG_THREADS, img_thread, p->first_thread + k)->tid;
                        struct thaw_thread *th = &t->threads[t->thread_count++];
                        *th = (struct thaw_thread){
                                .tid = cop_pid_outside(t->pidns_fd, tid),
                                .proc = i,
                                .thread = p->first_thread + k,
                                .regs = IMG_RECORD(t->image, IMG_THREADS, img_thread, p->first_thread + k)->regs};
                        if (th->tid == 0)
                                return cop_error_set(err, ESRCH, COP_ERR_start_failed, "thread %d is not there", tid);
                }
        }
        return 0;
}

/* Leaders that are to end do so in the trampoline, which is unmapped soon. */
static int await_leaders(const struct thaw *t, struct cop_error *err)
{
        usec_t deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), THAW_TIMEOUT);
        struct cop_procfs_stat st = {0};
        char path[32];

        for (uint32_t i = 0; i < t->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, i);
                if (!p->leader_ended)
                        continue;
                snprintf(path, sizeof(path), "/proc/%d", cop_pid_outside(t->pidns_fd, p->pid));
                _cleanup_close_ int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                for (;; usleep(50)) {
                        int r = cop_procfs_stat(dir_fd, &st, err);
                        if (r < 0)
                                return r;
                        if (st.state == 'Z')
                                break;
                        if (cop_now(CLOCK_MONOTONIC) > deadline)
                                return cop_error_set(err, ETIMEDOUT, COP_ERR_start_failed,
                                                     "the first thread of process %d does not end", p->pid);
                }
        }
        return 0;
}

static int remove_inside(void *userdata)
{
        cop_restore_sysv_remove(userdata);
        return 0;
}

/* Segments that were removed while attached are removed now that they are attached again. */
static int remove_doomed(struct thaw *t, struct cop_error *err)
{
        char path[64];

        if (!cop_restore_sysv_doomed(t->image))
                return 0;
        if (cop_guest_needed())
                return cop_guest_run(t->root, remove_inside, t->image, err);
        snprintf(path, sizeof(path), "/proc/%d/ns/ipc", t->root);
        _cleanup_close_ int there = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int home = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
        if (there < 0 || home < 0 || setns(there, CLONE_NEWIPC) < 0)
                return cop_error_errno(err, errno, "entering the tree's ipc namespace");
        cop_restore_sysv_remove(t->image);
        return setns(home, CLONE_NEWIPC) < 0 ? cop_error_errno(err, errno, "leaving the tree's ipc namespace") : 0;
}

/* A thread of the process, or NULL. */
static const struct thaw_thread *thread_of(const struct thaw *t, uint32_t proc)
{
        for (size_t i = 0; i < t->thread_count; i++)
                if (t->threads[i].proc == proc)
                        return &t->threads[i];
        return NULL;
}

static int seal_through(const struct thaw *t, uint32_t proc, int fd, uint64_t seals, struct cop_error *err)
{
        const struct thaw_thread *th = thread_of(t, proc);
        _cleanup_close_ int mine = th ? take_fd(th->tid, fd) : -EBADF;

        if (mine < 0 || (fcntl(mine, F_GET_SEALS) != (int)seals && fcntl(mine, F_ADD_SEALS, (int)seals) < 0))
                return cop_error_errno(err, errno, "sealing descriptor %d", fd);
        return 0;
}

/* Memfds that are not to be mapped for writing any more are sealed when all who may have mapped them, through any descriptor that may:
 * without one, nobody can map them so anyway. */
static int seal_late(struct thaw *t, struct cop_error *err)
{
        for (uint32_t i = 0; i < t->image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, i);
                for (uint32_t k = 0; k < p->fds; k++) {
                        const struct img_fd *fd = IMG_RECORD(t->image, IMG_FDS, img_fd, p->first_fd + k);
                        const struct img_file *f = IMG_RECORD(t->image, IMG_FILES, img_file, fd->file);
                        if (f->kind != IMG_FILE_MEMFD || !cop_restore_seals_late(f) ||
                            (f->flags & O_ACCMODE) == O_RDONLY || f->flags & O_PATH)
                                continue;
                        int r = seal_through(t, i, fd->fd, f->arg[1], err);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

/* Each stop and each going on wakes a thread up, and then us: on one processor that is a switch, on another it takes some 40 us in a
 * virtual machine.  Many would be in our way when they are let go. */
static void keep_near(struct thaw *t)
{
        cpu_set_t ours;
        unsigned cpu;

        if (t->thread_count > NEAR_MAX || syscall(SYS_getcpu, &cpu, NULL, NULL) < 0)
                return;
        CPU_ZERO(&ours);
        CPU_SET(cpu, &ours);
        for (size_t i = 0; i < t->thread_count; i++) {
                struct thaw_thread *th = &t->threads[i];
                th->near = sched_getaffinity(th->tid, sizeof(th->cpus), &th->cpus) == 0 &&
                           sched_setaffinity(th->tid, sizeof(ours), &ours) == 0;
        }
}

static int seize_all(struct thaw *t, struct cop_error *err)
{
        keep_near(t);
        for (size_t i = 0; i < t->thread_count; i++) {
                struct thaw_thread *th = &t->threads[i];
                if (ptrace(PTRACE_SEIZE, th->tid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, th->tid, 0, 0) < 0)
                        return cop_error_errno(err, errno, "seizing thread %d", th->tid);
                th->seized = true;
        }
        for (size_t i = 0; i < t->thread_count; i++) {
                int status, r = cop_wait_task(t->threads[i].tid, &status);
                if (r < 0 || !WIFSTOPPED(status))
                        return cop_error_set(err, ESRCH, COP_ERR_start_failed, "thread %d ended", t->threads[i].tid);
                t->threads[i].unconfined = /* needs rights */
                        ptrace(PTRACE_SETOPTIONS, t->threads[i].tid, 0, COP_SUSPEND_SECCOMP) == 0;
        }
        return 0;
}

/* Undumpable only now: without rights over the memory's user namespace (a stub's is the engine's) it could not have been seized. */
static int hide(struct cop_proc *p, struct cop_task *task, struct cop_error *err)
{
        uint64_t arg[6] = {PR_SET_DUMPABLE, 0};
        int64_t result;
        int r = cop_remote_syscall(p, task, SYS_prctl, arg, &result, err);

        return r == 0 && result != 0 ? cop_error_errno(err, (int)-result, "hiding the memory of thread %d", task->tid)
                                     : r;
}

/* For cop_remote_syscall() in that thread. */
static int prepare_remote(const struct thaw *t, const struct thaw_thread *th, struct cop_proc *ret_proc,
                          struct cop_task *ret_task, struct cop_error *err)
{
        const struct img_proc *ip = IMG_RECORD(t->image, IMG_PROCS, img_proc, th->proc);

        *ret_proc = (struct cop_proc){
                .syscall_insn = ip->vdso_text ? ip->vdso_text + t->syscall_offset : ip->syscall_insn,
                .no_traps = cop_restore_no_traps(t->image, ip),
        };
        *ret_task = (struct cop_task){.tid = th->tid};
        if (ptrace(PTRACE_GETREGS, th->tid, 0, &ret_task->regs) < 0)
                return cop_error_errno(err, errno, "reading registers");
        return 0;
}

/* A process whose trampoline goes. */
struct unmapping {
        struct cop_proc proc;
        struct cop_task task;
        const struct img_proc *image;
};

/* By a system call made from the vdso, the one place that stays, or from code of its own. */
static int begin_unmapping(struct thaw *t, const struct thaw_thread *th, struct unmapping *u, struct cop_error *err)
{
        const struct cop_restore_place *place = &t->restore.shared->place[th->proc];
        uint64_t arg[6] = {place->region, place->region_size};
        int r = prepare_remote(t, th, &u->proc, &u->task, err);

        u->image = IMG_RECORD(t->image, IMG_PROCS, img_proc, th->proc);
        return r < 0 ? r : cop_remote_begin(&u->proc, &u->task, SYS_munmap, arg, err);
}

static int end_unmapping(struct unmapping *u, struct cop_error *err)
{
        int64_t result;
        int r = cop_remote_end(&u->proc, &u->task, &result, err);

        if (r == 0 && result != 0)
                r = cop_error_errno(err, (int)-result, "unmapping the trampoline");
        return r < 0 || u->image->dumpable == 1 ? r : hide(&u->proc, &u->task, err);
}

/* All of them at once: each call costs little more than the waking of a processor. */
static int unmap_regions(struct thaw *t, struct cop_error *err)
{
        _cleanup_free_ struct unmapping *list = calloc(t->image->count[IMG_PROCS] + 1UL, sizeof(*list));
        size_t n = 0;
        int r = list ? 0 : cop_error_errno(err, ENOMEM, "unmapping the trampoline");

        for (size_t i = 0; r == 0 && i < t->thread_count; i++)
                if (i == 0 || t->threads[i].proc != t->threads[i - 1].proc)
                        r = begin_unmapping(t, &t->threads[i], &list[n++], err);
        for (size_t i = 0; r == 0 && i < n; i++)
                r = end_unmapping(&list[i], err);
        return r;
}

static int write_registers(struct thaw *t, const struct thaw_thread *th, struct cop_error *err)
{
        const struct img_thread *it = IMG_RECORD(t->image, IMG_THREADS, img_thread, th->thread);
        struct iovec iov = {.iov_base = (void *)(uintptr_t)cop_image_at(t->image, &it->xstate),
                            .iov_len = it->xstate.length};
        uint64_t mask = it->sigmask;

        if (ptrace(PTRACE_SETREGSET, th->tid, NT_X86_XSTATE, &iov) < 0)
                return cop_error_errno(err, errno, "writing the vector state of thread %d", it->tid);
        if (ptrace(PTRACE_SETREGS, th->tid, 0, &th->regs) < 0 ||
            ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, th->tid, 8, &mask) < 0)
                return cop_error_errno(err, errno, "writing the registers of thread %d", it->tid);
        return 0;
}

/* ---- stopped processes ---- */

/* Stops the process of n threads, which stand in the trampoline with all signals blocked: so that none is handled before.  Each is
 * then in the trap of a group stop, which its detaching leaves in effect. */
static int stop_group(const struct thaw_thread *threads, size_t n, int sig, struct cop_error *err)
{
        uint64_t mask = ~(1ULL << (sig - 1));
        pid_t leader = threads[0].tid;
        int status = 0;

        /* The leader takes a SIGSTOP, in whose place it is given the signal that is to be told. */
        if (ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, leader, 8, &mask) < 0 ||
            syscall(SYS_tkill, leader, SIGSTOP) < 0 || ptrace(PTRACE_CONT, leader, 0, 0) < 0)
                return cop_error_errno(err, errno, "stopping process %d", leader);
        for (size_t i = 0; i < n; i++) {
                int r = i == 0 ? cop_wait_task(leader, &status) : 0;
                if (r < 0 || (i == 0 && (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)))
                        return cop_error_set(err, ESRCH, COP_ERR_start_failed, "process %d does not stop (%#x)", leader,
                                             status);
                if (ptrace(PTRACE_CONT, threads[i].tid, 0, i == 0 ? sig : 0) < 0 ||
                    (i == 0 && ptrace(PTRACE_INTERRUPT, leader, 0, 0) < 0))
                        return cop_error_errno(err, errno, "stopping thread %d", threads[i].tid);
                r = cop_wait_task(threads[i].tid, &status);
                if (r < 0 || !WIFSTOPPED(status) || status >> 16 != PTRACE_EVENT_STOP)
                        return cop_error_set(err, ESRCH, COP_ERR_start_failed, "thread %d does not stop (%#x)",
                                             threads[i].tid, status);
                if (WSTOPSIG(status) == SIGTRAP) /* the interrupt: nothing came of the signal */
                        return -EAGAIN;
        }
        return 0;
}

/* The parent was told of the stop just now: it is not to see more of it than it had to see when it was frozen. */
static int settle_parent(struct thaw *t, const struct img_proc *child, struct cop_error *err)
{
        const struct img_proc *parent = IMG_RECORD(t->image, IMG_PROCS, img_proc, child->parent);
        const struct cop_restore_place *place = &t->restore.shared->place[child->parent];
        const struct thaw_thread *th = thread_of(t, child->parent);
        struct {
                uint64_t set, no_time[2];
        } data = {.set = 1ULL << (SIGCHLD - 1)};
        uint64_t at = place->region + place->region_size - sizeof(data);
        uint64_t wait[6] = {P_PID, (uint64_t)child->pid, 0, WSTOPPED | WNOHANG | __WALL};
        uint64_t take[6] = {at, 0, at + 8, sizeof(data.set)};
        struct iovec local = {&data, sizeof(data)}, there = {(void *)(uintptr_t)at, sizeof(data)};
        struct cop_task task;
        struct cop_proc p;
        int64_t result;

        if (!th)
                return 0;
        int r = prepare_remote(t, th, &p, &task, err);
        if (r == 0 && child->stop_told == IMG_STOP_WAITED)
                r = cop_remote_syscall(&p, &task, SYS_waitid, wait, &result, err);
        if (r < 0 || cop_restore_holds_signal(t->image, parent->first_signal, parent->signals, SIGCHLD))
                return r;
        if (process_vm_writev(th->tid, &local, 1, &there, 1, 0) != sizeof(data))
                return cop_error_errno(err, errno, "writing to process %d", parent->pid);
        return cop_remote_syscall(&p, &task, SYS_rt_sigtimedwait, take, &result, err);
}

static int stop_again(struct thaw *t, struct cop_error *err)
{
        for (size_t i = 0, n; i < t->thread_count; i += n) {
                const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, t->threads[i].proc);
                n = p->threads;
                if (p->state != IMG_STOPPED)
                        continue;
                /* Only with its default action does one of the others stop, and not in a group that is an orphan by now. */
                bool other = p->stop_signal > 0 && p->stop_signal <= 64 &&
                             cop_restore_action(t->image, p, p->stop_signal) == 0;
                int r = stop_group(&t->threads[i], n, other ? p->stop_signal : SIGSTOP, err);
                if (r == -EAGAIN && other)
                        r = stop_group(&t->threads[i], n, SIGSTOP, err);
                if (r == -EAGAIN)
                        r = cop_error_set(err, EIO, COP_ERR_start_failed, "process %d does not stop", p->pid);
                if (r == 0 && p->parent != IMG_NONE && p->stop_told != IMG_STOP_NEW)
                        r = settle_parent(t, p, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Threads that have parked before they set their seccomp filters: that, and what comes after. */
static int set_filters(struct thaw *t, struct cop_error *err)
{
        uint64_t mask = ~(1ULL << (SIGTRAP - 1));
        bool late = false, no_traps = false;

        for (size_t i = 0; i < t->thread_count; i++) {
                const struct thaw_thread *th = &t->threads[i];
                struct cop_task task = {.tid = th->tid};
                if (i == 0 || th->proc != t->threads[i - 1].proc) {
                        const struct img_proc *p = IMG_RECORD(t->image, IMG_PROCS, img_proc, th->proc);
                        late = cop_restore_filters_late(t->image, p);
                        no_traps = cop_restore_no_traps(t->image, p);
                }
                if (!late)
                        continue;
                if (!th->unconfined && IMG_RECORD(t->image, IMG_THREADS, img_thread, th->thread)->seccomp_strict)
                        return cop_error_set(err, EPERM, COP_ERR_start_failed,
                                             "only root may put thread %d into strict seccomp mode", th->tid);
                if (ptrace(PTRACE_GETREGS, th->tid, 0, &task.regs) < 0)
                        return cop_error_errno(err, errno, "reading registers");
                task.regs.rip = t->restore.shared->place[th->proc].code;
                task.regs.r12 += sizeof(struct cop_op);
                task.regs.orig_rax = (uint64_t)-1;
                if (ptrace(PTRACE_SETREGS, th->tid, 0, &task.regs) < 0 ||
                    (!no_traps && ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, th->tid, 8, &mask) < 0))
                        return cop_error_errno(err, errno, "writing registers");
                int r = no_traps ? cop_run_to_mark(&task, err) : cop_run_to_trap(&task, PTRACE_CONT, err);
                if (r < 0)
                        return check_failed(t, err) < 0 ? -EIO : r;
        }
        return 0;
}

/* ns that a thread's interrupted call has left, at least 1; 0: it has no limit. */
static uint64_t time_left(const struct thaw *t, const struct thaw_thread *th)
{
        uint64_t end = IMG_RECORD(t->image, IMG_THREADS, img_thread, th->thread)->wait_end;
        uint64_t now = IMG_RECORD(t->image, IMG_TREE, img_tree, 0)->monotonic_ns;

        return end == 0 ? 0 : end > now ? end - now : 1;
}

static int enter_waits(struct thaw *t, struct cop_error *err)
{
        for (size_t i = 0; i < t->thread_count; i++) {
                struct thaw_thread *th = &t->threads[i];
                const struct cop_restore_place *place = &t->restore.shared->place[th->proc];
                struct cop_task task;
                struct cop_proc p;
                if (time_left(t, th) == 0)
                        continue;
                int r = prepare_remote(t, th, &p, &task, err);
                if (r < 0)
                        return r;
                cop_waits_enter(&p, &task, time_left(t, th),
                                place->region + place->region_size - sizeof(struct timespec), &th->regs);
        }
        return 0;
}

static int give_registers(struct thaw *t, struct cop_error *err)
{
        int r = set_filters(t, err);

        if (r == 0)
                r = enter_waits(t, err);
        if (r == 0)
                r = stop_again(t, err);
        if (r == 0)
                r = unmap_regions(t, err);
        for (size_t i = 0; r == 0 && i < t->thread_count; i++) {
                uint64_t left = time_left(t, &t->threads[i]);
                if (left > 0)
                        cop_waits_add(t->restore.request->waits, t->threads[i].tid, left, &t->threads[i].regs);
                r = write_registers(t, &t->threads[i], err);
        }
        return r;
}

static void let_go(struct thaw *t)
{
        for (size_t i = t->thread_count; i-- > 0;) {
                if (t->threads[i].near)
                        (void)sched_setaffinity(t->threads[i].tid, sizeof(t->threads[i].cpus), &t->threads[i].cpus);
                cop_let_go(t->threads[i].tid);
                t->threads[i].seized = false;
        }
}

static void kill_tree(struct thaw *t)
{
        int status;

        if (t->root <= 0)
                t->root = (pid_t)t->restore.shared->root_pid;
        if (t->root <= 0)
                return;
        kill(t->root, SIGKILL);
        for (size_t i = t->thread_count; i-- > 0;) /* tracees must be reaped for the namespace to end */
                if (t->threads[i].seized && t->threads[i].tid != t->root) {
                        kill(t->threads[i].tid, SIGKILL);
                        (void)cop_wait_task(t->threads[i].tid, &status);
                }
        (void)cop_wait_task(t->root, &status);
}

static void thaw_done(struct thaw *t)
{
        if (t->restore.shared)
                munmap(t->restore.shared, t->restore.shared_size);
        cop_close(t->restore.shared_fd);
        cop_close(t->restore.pass_fd[COP_PASS_ENGINE]);
        cop_close(t->restore.pass_fd[COP_PASS_TREE]);
        cop_watch_free(t->watch);
        cop_close(t->pidfd);
        cop_close(t->pidns_fd);
        free(t->threads);
        free(t->births);
        cop_image_free(t->image);
}

int cop_thaw_open(int image_dir_fd, struct cop_image **ret, struct cop_error *err)
{
        int r = cop_image_open(image_dir_fd, true, ret, err);

        return r < 0 ? cop_error_wrap(err, r, "thawing") : 0;
}

void cop_thaw_close(struct cop_image *image)
{
        cop_image_free(image);
}

int cop_thaw(const struct cop_thaw_request *request, struct cop_thaw_result *ret, struct cop_error *err)
{
        struct thaw t = {.pidfd = -EBADF, .pidns_fd = -EBADF};
        struct cop_thaw_result res = {.pidfd = -EBADF};
        usec_t begin = cop_now(CLOCK_MONOTONIC), last = begin;
        int r;

#define STAGE(n)                                       \
        do {                                           \
                usec_t now = cop_now(CLOCK_MONOTONIC); \
                res.stage[n] = now - last;             \
                last = now;                            \
        } while (0)
        t.restore.shared_fd = t.restore.pass_fd[COP_PASS_ENGINE] = t.restore.pass_fd[COP_PASS_TREE] = -EBADF;
        t.image = request->image;
        r = t.image ? 0 : cop_image_open(request->image_dir_fd, false, &t.image, err);
        if (r < 0)
                return cop_error_wrap(err, r, "thawing");
        t.restore.request = request;
        t.restore.image = t.image;
        t.syscall_offset = cop_vdso_syscall();
        t.restore.base_fd = (int)IMG_RECORD(t.image, IMG_TREE, img_tree, 0)->max_fd + 1;
        if (t.restore.base_fd < 64)
                t.restore.base_fd = 64;
        for (uint32_t i = 0; i < t.image->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(t.image, IMG_PROCS, img_proc, i);
                t.restore.live += p->state != IMG_ZOMBIE;
                if (p->state != IMG_ZOMBIE && p->dumpable != 1 && !t.restore.unwatched)
                        t.restore.unwatched = cop_guest_needed();
        }
        r = plan_births(&t, err);
        if (r == 0)
                r = make_shared(&t, err);
        STAGE(0);
        if (r == 0)
                r = start_helper(&t, err);
        STAGE(1);
        if (r == 0)
                r = wait_parked(&t, request->timeout ? request->timeout : THAW_TIMEOUT, err);
        STAGE(4);
        if (r == 0)
                r = remove_doomed(&t, err);
        if (r == 0)
                r = find_threads(&t, err);
        if (r == 0)
                r = await_leaders(&t, err);
        if (r == 0)
                r = seize_all(&t, err);
        if (r == 0)
                r = seal_late(&t, err);
        STAGE(5);
        if (r == 0)
                r = give_registers(&t, err);
        if (r == 0 && request->before_run)
                r = request->before_run(request->userdata, err);
        STAGE(6);
        if (r == 0) {
                let_go(&t);
                res.root = t.root;
                res.pidfd = TAKE_FD(t.pidfd);
                res.watch = TAKE_PTR(t.watch);
                res.processes = t.image->count[IMG_PROCS];
                res.threads = t.image->count[IMG_THREADS];
                STAGE(7);
                memcpy(res.mark, t.restore.shared->mark, sizeof(res.mark));
                res.total = last - begin;
                *ret = res;
        } else if (t.restore.shared)
                kill_tree(&t);
#undef STAGE
        thaw_done(&t);
        return r < 0 ? cop_error_wrap(err, r, "thawing") : 0;
}
