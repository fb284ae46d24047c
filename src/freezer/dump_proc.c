/* Processes and threads: what registers, /proc and a batch of calls inside each thread tell about them. */
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/births.h"
#include "freezer/dump.h"
#include "freezer/watch.h"

#define GROUPS_MAX 1024

#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif
#ifndef PR_GET_MEMORY_MERGE
#define PR_GET_MEMORY_MERGE 68
#endif
#define MEMBARRIER_GET_REGISTRATIONS (1 << 9) /* an enumerator since 6.3 */
#define PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG_ 0x4211

#define CS_OF_32_BITS 0x23 /* __USER32_CS */

struct dispatch_config { /* struct ptrace_sud_config, since 6.4 */
        uint64_t mode, selector, offset, length;
};

/* Where the calls of a batch leave their answers; lies in the data part of the slot. */
struct answers {
        uint64_t altstack[3];
        uint64_t tid_address;
        uint64_t robust_list, robust_len;
        int32_t pdeath_signal, subreaper, tsc;
        uint32_t uid[4], gid[4]; /* the fourth is filled from results */
        uint64_t itimers[3][4];
        uint32_t groups[GROUPS_MAX];
        uint8_t sigactions[64][32];
};
_Static_assert(sizeof(struct answers) <= COP_SLOT_SCRATCH, "the slot is too small");

enum {
        OP_ALTSTACK,
        OP_TID_ADDRESS,
        OP_PDEATH,
        OP_TIMERSLACK,
        OP_ROBUST,
        OP_RESUID,
        OP_RESGID,
        OP_FSUID,
        OP_FSGID,
        OP_GROUPS,
        OP_SECUREBITS,
        OP_PERSONALITY,
        OP_TSC,
        OP_CPUID,
        OP_SPECULATION,
        OP_THREAD_COUNT = OP_SPECULATION + 2,
        OP_BRK = OP_THREAD_COUNT,
        OP_DUMPABLE,
        OP_SUBREAPER,
        OP_THP,
        OP_KEEPCAPS,
        OP_MCE,
        OP_MDWE,
        OP_MERGE,
        OP_MEMBARRIER,
        OP_LDT,
        OP_ITIMER,
        OP_SIGACTION = OP_ITIMER + 3,
        OP_COUNT = OP_SIGACTION + 64,
};
_Static_assert(OP_COUNT + 2 <= COP_SLOT_OPS, "the slot has too few operations");

#define AT(field) cop_batch_data(p, t, offsetof(struct answers, field))

static size_t fill_ops(const struct cop_proc *p, const struct cop_task *t, struct cop_op *ops, bool leader)
{
        ops[OP_ALTSTACK] = cop_op(SYS_sigaltstack, 0, 0, AT(altstack), 0, 0, 0, 0);
        ops[OP_TID_ADDRESS] = cop_op(SYS_prctl, 0, PR_GET_TID_ADDRESS, AT(tid_address), 0, 0, 0, 0);
        ops[OP_PDEATH] = cop_op(SYS_prctl, 0, PR_GET_PDEATHSIG, AT(pdeath_signal), 0, 0, 0, 0);
        ops[OP_TIMERSLACK] = cop_op(SYS_prctl, 0, PR_GET_TIMERSLACK, 0, 0, 0, 0, 0);
        ops[OP_ROBUST] = cop_op(SYS_get_robust_list, 0, 0, AT(robust_list), AT(robust_len), 0, 0, 0);
        ops[OP_RESUID] = cop_op(SYS_getresuid, 0, AT(uid[0]), AT(uid[1]), AT(uid[2]), 0, 0, 0);
        ops[OP_RESGID] = cop_op(SYS_getresgid, 0, AT(gid[0]), AT(gid[1]), AT(gid[2]), 0, 0, 0);
        ops[OP_FSUID] = cop_op(SYS_setfsuid, 0, UINT32_MAX, 0, 0, 0, 0, 0);
        ops[OP_FSGID] = cop_op(SYS_setfsgid, 0, UINT32_MAX, 0, 0, 0, 0, 0);
        ops[OP_GROUPS] = cop_op(SYS_getgroups, 0, GROUPS_MAX, AT(groups), 0, 0, 0, 0);
        ops[OP_SECUREBITS] = cop_op(SYS_prctl, 0, PR_GET_SECUREBITS, 0, 0, 0, 0, 0);
        ops[OP_PERSONALITY] = cop_op(SYS_personality, 0, UINT32_MAX, 0, 0, 0, 0, 0);
        ops[OP_TSC] = cop_op(SYS_prctl, 0, PR_GET_TSC, AT(tsc), 0, 0, 0, 0);
        ops[OP_CPUID] = cop_op(SYS_arch_prctl, 0, ARCH_GET_CPUID, 0, 0, 0, 0, 0);
        for (unsigned i = 0; i < 2; i++)
                ops[OP_SPECULATION + i] = cop_op(SYS_prctl, 0, PR_GET_SPECULATION_CTRL, i, 0, 0, 0, 0);
        if (!leader)
                return OP_THREAD_COUNT;
        ops[OP_BRK] = cop_op(SYS_brk, 0, 0, 0, 0, 0, 0, 0);
        ops[OP_DUMPABLE] = cop_op(SYS_prctl, 0, PR_GET_DUMPABLE, 0, 0, 0, 0, 0);
        ops[OP_SUBREAPER] = cop_op(SYS_prctl, 0, PR_GET_CHILD_SUBREAPER, AT(subreaper), 0, 0, 0, 0);
        ops[OP_THP] = cop_op(SYS_prctl, 0, PR_GET_THP_DISABLE, 0, 0, 0, 0, 0);
        ops[OP_KEEPCAPS] = cop_op(SYS_prctl, 0, PR_GET_KEEPCAPS, 0, 0, 0, 0, 0);
        ops[OP_MCE] = cop_op(SYS_prctl, 0, PR_MCE_KILL_GET, 0, 0, 0, 0, 0);
        ops[OP_MDWE] = cop_op(SYS_prctl, 0, PR_GET_MDWE, 0, 0, 0, 0, 0);
        ops[OP_MERGE] = cop_op(SYS_prctl, 0, PR_GET_MEMORY_MERGE, 0, 0, 0, 0, 0);
        ops[OP_MEMBARRIER] = cop_op(SYS_membarrier, 0, MEMBARRIER_GET_REGISTRATIONS, 0, 0, 0, 0, 0);
        ops[OP_LDT] = cop_op(SYS_modify_ldt, 0, 0 /* read */, AT(sigactions), 8, 0, 0, 0); /* overwritten below */
        for (unsigned i = 0; i < 3; i++)
                ops[OP_ITIMER + i] = cop_op(SYS_getitimer, 0, i, AT(itimers[i]), 0, 0, 0, 0);
        for (unsigned i = 0; i < 64; i++)
                ops[OP_SIGACTION + i] = cop_op(SYS_rt_sigaction, 0, i + 1, 0, AT(sigactions[i]), 8, 0, 0);
        return OP_COUNT;
}

/* But those that timers will make again. */
static struct img_ref dump_signals(struct cop_dump *d, pid_t tid, unsigned flags, const struct cop_timers *timers)
{
        struct __ptrace_peeksiginfo_args args = {.flags = flags, .nr = 32};
        struct img_signal list[32];
        struct img_ref ref = {.offset = cop_image_count(d->writer, IMG_SIGNALS)};

        for (;;) {
                long n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, list);
                if (n <= 0)
                        return ref;
                for (long i = 0; i < n; i++) {
                        if (cop_timers_make(timers, &list[i]))
                                continue;
                        cop_image_add(d->writer, IMG_SIGNALS, &list[i]);
                        ref.length++;
                }
                args.off += (uint64_t)n;
        }
}

/* Asked of the filter itself.  Only where a memory watch may be: a filter of the program's own may take the question amiss. */
static bool only_watched(struct cop_proc *p, struct cop_task *t)
{
        uint64_t vdso = p->syscall_insn ? 0 : cop_procfs_vdso(p->dir_fd), arg[6] = {0, 0, COP_WATCH_PROBE};
        int64_t result = 0;

        if (vdso)
                p->syscall_insn = vdso + cop_vdso_syscall();
        return p->syscall_insn && cop_remote_syscall(p, t, SYS_madvise, arg, &result, NULL) == 0 &&
               result == -COP_WATCH_ANSWER;
}

static void look_for_traps(struct cop_proc *p, const struct cop_procfs_status *status)
{
        p->no_traps = cop_procfs_ignores(status, SIGTRAP);
        for (size_t k = 0; k < p->task_count && !p->no_traps; k++)
                p->no_traps = cop_trap_pending(p->tasks[k].tid);
}

/* Where the engine cannot make calls inside: those of 32-bit code are others, and dispatched ones come back to the program as signals. */
static int check_calls(struct cop_dump *d, struct cop_error *err)
{
        for (uint32_t i = 0; i < d->tree.count; i++)
                for (size_t k = 0; k < d->tree.procs[i].task_count; k++) {
                        struct dispatch_config config = {0};
                        if (d->tree.procs[i].tasks[k].regs.cs == CS_OF_32_BITS)
                                return cop_not_freezable(d, i, err, "runs 32-bit code");
                        if (ptrace((enum __ptrace_request)PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG_,
                                   d->tree.procs[i].tasks[k].tid, sizeof(config), &config) == 0 &&
                            config.mode != PR_SYS_DISPATCH_OFF)
                                return cop_not_freezable(d, i, err,
                                                         "has its system calls sent to itself "
                                                         "(PR_SET_SYSCALL_USER_DISPATCH)");
                }
        return 0;
}

int cop_dump_check_filters(struct cop_dump *d, struct cop_error *err)
{
        int calls = check_calls(d, err);

        if (calls < 0)
                return calls;
        for (uint32_t i = 0; i < d->tree.count; i++)
                for (size_t k = 0; k < d->tree.procs[i].task_count; k++) {
                        struct cop_proc *p = &d->tree.procs[i];
                        if (p->tasks[k].unconfined && !d->guest)
                                continue;
                        struct cop_procfs_status status;
                        char path[32];
                        snprintf(path, sizeof(path), "task/%d", p->tasks[k].tid);
                        _cleanup_close_ int dir_fd = openat(p->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                        if (dir_fd < 0)
                                return cop_error_errno(err, errno, "opening thread %d", p->tasks[k].tid);
                        int r = cop_procfs_status(dir_fd, &status, err);
                        if (r < 0)
                                return r;
                        look_for_traps(p, &status);
                        if (status.seccomp == SECCOMP_MODE_STRICT)
                                return cop_not_freezable(d, i, err,
                                                         "is in strict seccomp mode, which only root may suspend");
                        if (status.seccomp == SECCOMP_MODE_FILTER && d->guest &&
                            (status.filters != 1 || !d->parent || !only_watched(p, &p->tasks[k])))
                                return cop_not_freezable(d, i, err, "has a seccomp filter, which only root may read");
                }
        return 0;
}

/* Filters of the tree; the memory watch's is made anew at every thaw. */
static int dump_filters(struct cop_dump *d, uint32_t index, pid_t tid, struct img_thread *it, struct cop_error *err)
{
        struct sock_filter program[4096];

        it->first_filter = cop_image_count(d->writer, IMG_FILTERS);
        if (d->guest)
                return 0; /* cop_dump_check_filters() */
        for (long i = 0;; i++) {
                long n = ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, i, program);
                if (n < 0 && errno == ENOENT)
                        return 0;
                if (n < 0)
                        return cop_not_freezable(d, index, err, "has a seccomp filter that cannot be read (%s)",
                                                 strerror(errno));
                if (cop_watch_is_ours(program, (size_t)n))
                        continue;
                struct img_filter f = {.program = cop_image_put(d->writer, program, (size_t)n * sizeof(program[0]))};
                cop_image_add(d->writer, IMG_FILTERS, &f);
                it->filters++;
        }
}

static int read_link(int dir_fd, const char *name, char *buf, size_t size)
{
        ssize_t n = readlinkat(dir_fd, name, buf, size - 1);

        if (n < 0)
                return -errno;
        buf[n] = '\0';
        return 0;
}

/* What processes may share, as threads do. */
enum { SHARE_VM, SHARE_FILES, SHARE_FS, SHARE_COUNT };
struct sharing {
        uint32_t *sorted[SHARE_COUNT]; /* owned; the first process that has each, in kcmp's order */
        size_t count[SHARE_COUNT];
        uint32_t *first[SHARE_COUNT]; /* owned; per process, who of the tree was the first to have what it has */
};

static void sharing_done(struct sharing *s)
{
        for (int i = 0; i < SHARE_COUNT; i++) {
                free(s->sorted[i]);
                free(s->first[i]);
        }
}

static int sharing_init(struct sharing *s, size_t processes, struct cop_error *err)
{
        bool all = true;

        for (int i = 0; i < SHARE_COUNT; i++) {
                s->sorted[i] = calloc(processes, sizeof(*s->sorted[i]));
                s->first[i] = calloc(processes, sizeof(*s->first[i]));
                all = all && s->sorted[i] && s->first[i];
        }
        return all ? 0 : cop_error_errno(err, ENOMEM, "comparing processes");
}

/* Who was the first to have what this process has of that kind: itself, when nobody did. */
static uint32_t first_with(struct cop_dump *d, struct sharing *s, int kind, uint32_t index)
{
        static const int types[SHARE_COUNT] = {KCMP_VM, KCMP_FILES, KCMP_FS};
        uint32_t *list = s->sorted[kind];
        size_t low = 0, high = s->count[kind];

        while (low < high) {
                size_t middle = (low + high) / 2;
                long order = syscall(SYS_kcmp, d->tree.procs[index].living, d->tree.procs[list[middle]].living,
                                     types[kind], 0, 0);
                if (order == 0)
                        return list[middle];
                if (order == 1)
                        high = middle;
                else
                        low = middle + 1;
        }
        memmove(list + low + 1, list + low, (s->count[kind]++ - low) * sizeof(*list));
        return list[low] = index;
}

/* A thaw can clone a child with what its parent has, but not where somebody else clones it (births.c). */
static int check_shared(struct cop_dump *d, uint32_t index, struct sharing *s, int kind, const struct img_proc *ip,
                        struct cop_error *err)
{
        static const char *const names[SHARE_COUNT] = {"memory", "descriptors", "its folder"};
        uint32_t first = first_with(d, s, kind, index);

        s->first[kind][index] = first;
        if (first == index)
                return 0;
        if (kind == SHARE_VM || s->first[kind][ip->parent] != first)
                return cop_not_freezable(d, index, err, "shares %s with process %d%s", names[kind],
                                         d->tree.procs[first].nspid,
                                         kind == SHARE_VM ? "" : ", which is not its parent");
        return 1;
}

/* Threads may have left what processes share; processes may share what only threads do. */
static int check_sharing(struct cop_dump *d, uint32_t index, struct sharing *s, struct img_proc *ip,
                         struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[index];

        for (size_t k = 1; k < p->task_count; k++)
                if (syscall(SYS_kcmp, p->living, p->tasks[k].tid, KCMP_FILES, 0, 0) > 0 ||
                    syscall(SYS_kcmp, p->living, p->tasks[k].tid, KCMP_FS, 0, 0) > 0)
                        return cop_not_freezable(d, index, err,
                                                 "has a thread (%d) with descriptors or a folder of its own",
                                                 p->tasks[k].nstid);
        int memory = check_shared(d, index, s, SHARE_VM, ip, err);
        int files = memory < 0 ? memory : check_shared(d, index, s, SHARE_FILES, ip, err);
        int folder = files < 0 ? files : check_shared(d, index, s, SHARE_FS, ip, err);
        if (folder < 0)
                return folder;
        ip->shares_files = (uint32_t)files;
        ip->shares_fs = (uint32_t)folder;
        return 0;
}

/* Those that a thread can leave its process's for come first. */
static const char *const namespaces[] = {
        "net", "ipc", "uts", "mnt", "user", "cgroup", "time", "pid_for_children", "time_for_children",
};
#define OF_THREADS 3
struct namespaces {
        char link[ELEMENTSOF(namespaces)][32]; /* those of the first process */
};

/* All of the tree live in the namespaces of its first process: a thaw makes one of each kind. */
static int check_namespaces(struct cop_dump *d, uint32_t index, struct namespaces *first, struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[index];

        for (size_t k = 0; k < p->task_count; k++)
                for (size_t i = 0; i < (k == 0 ? ELEMENTSOF(namespaces) : OF_THREADS); i++) {
                        char path[64], link[32];
                        snprintf(path, sizeof(path), "task/%d/ns/%s", p->tasks[k].tid, namespaces[i]);
                        int r = read_link(p->dir_fd, path, link, sizeof(link));
                        if (r == -ENOENT) /* a kernel without this kind */
                                link[0] = '\0';
                        else if (r < 0)
                                return cop_error_errno(err, -r, "reading the %s namespace of pid %d (%s)",
                                                       namespaces[i], p->nspid, p->comm);
                        if (index == 0 && k == 0)
                                memcpy(first->link[i], link, sizeof(link));
                        else if (strcmp(first->link[i], link) != 0)
                                return cop_not_freezable(d, index, err, "has a namespace of its own (%s)",
                                                         namespaces[i]);
                }
        return 0;
}

static void dump_affinity(struct cop_dump *d, pid_t tid, struct img_thread *it)
{
        cpu_set_t mask;

        CPU_ZERO(&mask);
        if (sched_getaffinity(tid, sizeof(mask), &mask) == 0 && CPU_COUNT(&mask) < (int)sysconf(_SC_NPROCESSORS_ONLN))
                it->affinity = cop_image_put(d->writer, &mask, sizeof(mask));
        it->io_priority = (int32_t)syscall(SYS_ioprio_get, 1 /* IOPRIO_WHO_PROCESS */, tid);
}

static void fill_creds(struct cop_dump *d, struct img_creds *c, const struct answers *a, const struct cop_op *ops,
                       const struct cop_procfs_status *status)
{
        memcpy(c->uid, a->uid, 3 * sizeof(uint32_t));
        memcpy(c->gid, a->gid, 3 * sizeof(uint32_t));
        c->uid[3] = (uint32_t)ops[OP_FSUID].result;
        c->gid[3] = (uint32_t)ops[OP_FSGID].result;
        if (ops[OP_GROUPS].result > 0)
                c->groups = cop_image_put(d->writer, a->groups, (size_t)ops[OP_GROUPS].result * sizeof(uint32_t));
        c->securebits = (uint32_t)ops[OP_SECUREBITS].result;
        c->inheritable = status->inheritable;
        c->permitted = status->permitted;
        c->effective = status->effective;
        c->bounding = status->bounding;
        c->ambient = status->ambient;
        c->no_new_privs = status->no_new_privs;
}

/* What prctl and its kin have said of instructions and calls of the thread. */
static void fill_modes(struct img_thread *it, const struct answers *a, const struct cop_op *ops)
{
        it->personality = (uint32_t)ops[OP_PERSONALITY].result;
        it->tsc = ops[OP_TSC].result == 0 ? (uint32_t)a->tsc : PR_TSC_ENABLE;
        it->cpuid = ops[OP_CPUID].result != 0; /* an error, where CPUs have no such fault */
        for (unsigned i = 0; i < 2; i++) {
                int64_t mode = ops[OP_SPECULATION + i].result;
                if (mode > 0 && mode & PR_SPEC_PRCTL && mode & ~(int64_t)(PR_SPEC_PRCTL | PR_SPEC_ENABLE))
                        it->speculation[i] = (uint32_t)mode & ~(uint32_t)PR_SPEC_PRCTL;
        }
}

/* The others (deadline, sched_ext) have more to them than a priority. */
static bool known_policy(uint32_t policy)
{
        policy &= ~(uint32_t)SCHED_RESET_ON_FORK;
        return policy == SCHED_OTHER || policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_BATCH ||
               policy == SCHED_IDLE;
}

static int dump_thread(struct cop_dump *d, uint32_t index, struct cop_task *t, struct cop_op *ops,
                       const struct answers *a, const struct cop_timers *timers, struct cop_error *err)
{
        struct img_thread it = {.tid = t->nstid, .regs = t->regs, .sigmask = t->sigmask};
        struct cop_proc *p = &d->tree.procs[index];
        struct cop_procfs_stat stat;
        struct cop_procfs_status status;
        char path[32];

        snprintf(path, sizeof(path), "task/%d", t->tid);
        _cleanup_close_ int dir_fd = openat(p->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir_fd < 0)
                return cop_error_errno(err, errno, "opening thread %d", t->tid);
        int r = cop_procfs_stat(dir_fd, &stat, err);
        if (r >= 0)
                r = cop_procfs_status(dir_fd, &status, err);
        if (r < 0)
                return r;
        /* It comes when the thread of the parent ends that forked the child, which in a thaw is the first one. */
        if (a->pdeath_signal && p->parent != IMG_NONE && d->tree.procs[p->parent].leader_ended)
                return cop_not_freezable(
                        d, index, err,
                        "is to have a signal at the end of a thread of process %d, whose first one has ended",
                        d->tree.procs[p->parent].nspid);
        p->remote_locked = status.locked_kb >= p->locked_kb + p->remote_size / 1024;
        (void)cop_rewind_interrupted(&it.regs);
        if (t->wait.restarted)
                it.regs.rax = t->wait.restarted;
        if (t->wait.limited) {
                it.regs.rax = t->wait.limit.nr; /* without a mark */
                it.wait_end = t->wait.end + (uint64_t)d->clock_offset[0];
        }
        it.xstate = cop_image_put(d->writer, t->xstate, t->xstate_size);
        memcpy(it.altstack, a->altstack, sizeof(it.altstack));
        it.tid_address = ops[OP_TID_ADDRESS].result == 0 ? a->tid_address : 0;
        it.robust_list = a->robust_list;
        it.robust_len = a->robust_len;
        it.pdeath_signal = a->pdeath_signal;
        it.timer_slack = (uint64_t)ops[OP_TIMERSLACK].result;
        if (ops[OP_GROUPS].result < 0)
                return cop_not_freezable(d, index, err, "is in more than %d groups", GROUPS_MAX);
        fill_modes(&it, a, ops);
        it.rseq = t->rseq;
        it.rseq_size = t->rseq_size;
        it.rseq_signature = t->rseq_signature;
        fill_creds(d, &it.creds, a, ops, &status);
        snprintf(it.comm, sizeof(it.comm), "%.15s", stat.comm);
        it.policy = (uint32_t)sched_getscheduler(t->tid);
        if (!known_policy(it.policy))
                return cop_not_freezable(d, index, err, "has a thread of scheduling policy %u", it.policy);
        it.priority = (uint32_t)stat.priority;
        it.nice = stat.nice;
        dump_affinity(d, t->tid, &it);
        if (status.seccomp == SECCOMP_MODE_FILTER) {
                r = dump_filters(d, index, t->tid, &it, err);
                if (r < 0)
                        return r;
        }
        it.seccomp_strict = status.seccomp == SECCOMP_MODE_STRICT;
        struct img_ref signals = dump_signals(d, t->tid, 0, timers);
        it.first_signal = signals.offset;
        it.signals = signals.length;
        t->wait.record = cop_image_add(d->writer, IMG_THREADS, &it);
        return 0;
}

static int dump_auxv(struct cop_dump *d, struct cop_proc *p, struct img_proc *ip, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r = cop_read_file(p->dir_fd, "auxv", 8192, &text, &n, err);

        if (r == 0)
                ip->auxv = cop_image_put(d->writer, text, n);
        return r;
}

/* What mlockall has said of memory to come was done to the batch region. */
static int dump_lock_future(struct cop_proc *p, struct img_proc *ip, struct cop_error *err)
{
        struct cop_vmas vs = {0};

        if (!p->remote_locked)
                return 0;
        int r = cop_procfs_vmas(p->dir_fd, true, &vs, err);
        for (size_t i = 0; r == 0 && i < vs.count; i++)
                if (vs.list[i].start <= p->remote && vs.list[i].end > p->remote && vs.list[i].flags & IMG_VMA_LOCKED)
                        ip->lock_future =
                                MCL_FUTURE | (vs.list[i].flags & IMG_VMA_LOCKONFAULT ? (uint32_t)MCL_ONFAULT : 0U);
        cop_vmas_done(&vs);
        return r;
}

static int64_t word_of(const struct cop_proc *p, const char *name, int base, int64_t otherwise)
{
        _cleanup_free_ char *text = NULL;

        return cop_read_word(p->dir_fd, name, &text, NULL) == 0 ? strtoll(text, NULL, base) : otherwise;
}

static void dump_words(struct cop_dump *d, const struct cop_proc *p, struct img_proc *ip)
{
        ip->oom_score_adj = (int32_t)word_of(p, "oom_score_adj", 10, 0);
        ip->coredump_filter = (uint32_t)word_of(p, "coredump_filter", 16, IMG_COREDUMP_FILTER);
        ip->loginuid = (uint32_t)word_of(p, "loginuid", 10, UINT32_MAX);
        if (ip->loginuid != UINT32_MAX)
                ip->loginuid = cop_dump_uid(d, ip->loginuid);
}

/* "cwd" or "root". */
static int dump_folder(struct cop_dump *d, const struct cop_proc *p, const char *name, struct img_ref *ret,
                       uint32_t *ret_file, struct cop_error *err)
{
        char link[COP_DUMP_LINK];
        struct stat st;
        int r = read_link(p->dir_fd, name, link, sizeof(link));

        if (r < 0 || fstatat(p->dir_fd, name, &st, 0) < 0)
                return cop_error_errno(err, r < 0 ? -r : errno, "reading the folders of pid %d", p->nspid);
        *ret = cop_image_puts(d->writer, link);
        if (cop_dump_leads_to(d, link, &st))
                return 0;
        if (!cop_dump_cut_deleted(link))
                return cop_not_freezable(d, (uint32_t)(p - d->tree.procs), err,
                                         "has %.100s as its %s, which its path does not lead to: a mount hides it, or "
                                         "has been removed",
                                         link, name);
        *ret_file = cop_dump_removed_folder(d, link, &st);
        return 0;
}

static int dump_process(struct cop_dump *d, struct cop_proc *p, struct img_proc *ip, const struct answers *a,
                        const struct cop_op *ops, const struct cop_procfs_stat *stat, struct cop_error *err)
{

        ip->dumpable = (uint32_t)ops[OP_DUMPABLE].result;
        ip->subreaper = (uint32_t)a->subreaper;
        ip->thp_disable = (uint32_t)ops[OP_THP].result;
        ip->mce_kill = (uint32_t)ops[OP_MCE].result;
        ip->keepcaps = (uint32_t)ops[OP_KEEPCAPS].result;
        ip->mdwe = ops[OP_MDWE].result > 0 ? (uint32_t)ops[OP_MDWE].result : 0;
        ip->memory_merge = ops[OP_MERGE].result == 1;
        ip->membarrier = ops[OP_MEMBARRIER].result > 0 ? (uint32_t)ops[OP_MEMBARRIER].result : 0;
        memcpy(ip->itimers, a->itimers, sizeof(ip->itimers));
        ip->sigactions = cop_image_put(d->writer, a->sigactions, sizeof(a->sigactions));
        const uint64_t mm[11] = {stat->start_code,  stat->end_code,  stat->start_data,
                                 stat->end_data,    stat->start_brk, (uint64_t)ops[OP_BRK].result,
                                 stat->start_stack, stat->arg_start, stat->arg_end,
                                 stat->env_start,   stat->env_end};
        memcpy(ip->mm, mm, sizeof(mm));
        int r = cop_procfs_limits(p->dir_fd, ip->rlimits, err);
        if (r == 0)
                r = dump_lock_future(p, ip, err);
        if (r < 0)
                return r;
        r = dump_folder(d, p, "cwd", &ip->cwd, &ip->cwd_file, err);
        if (r == 0)
                r = dump_folder(d, p, "root", &ip->root, &ip->root_file, err);
        if (r < 0)
                return r;
        dump_words(d, p, ip);
        return dump_auxv(d, p, ip, err);
}

static const struct cop_vma *find_vdso(const struct cop_vmas *vs)
{
        for (size_t i = vs->count; i-- > 0;)
                if (vs->list[i].vdso)
                        return &vs->list[i];
        return NULL;
}

/* Of the vdso, or of any code where that is unmapped. */
static int find_instruction(struct cop_dump *d, uint32_t index, struct img_proc *ip, struct cop_error *err)
{
        const struct cop_vma *vdso = find_vdso(&d->vmas[index]);
        struct cop_proc *p = &d->tree.procs[index];

        if (vdso && cop_vdso_syscall()) {
                p->syscall_insn = vdso->start + cop_vdso_syscall();
                return 0;
        }
        for (size_t i = 0; i < d->vmas[index].count && !ip->syscall_insn; i++) {
                const struct cop_vma *v = &d->vmas[index].list[i];
                if (v->flags & IMG_VMA_EXEC && !v->special)
                        ip->syscall_insn = cop_find_syscall(p, v->start, v->end - v->start);
        }
        p->syscall_insn = ip->syscall_insn;
        return p->syscall_insn ? 0
                               : cop_not_freezable(d, index, err,
                                                   "has unmapped its vdso, and has no system call instruction besides");
}

static int start_batches(struct cop_proc *p, const struct cop_vma *vdso, struct cop_op (*ops)[COP_SLOT_OPS],
                         struct cop_error *err)
{
        int r = 0;

        for (size_t k = 0; r == 0 && vdso && k < p->task_count; k++)
                r = cop_leave_vdso(p, &p->tasks[k], vdso->start, vdso->end, err);
        if (r == 0)
                r = cop_batch_begin(p, err);
        size_t started = 0;
        for (size_t k = 0; r == 0 && k < p->task_count; k++) {
                size_t n = fill_ops(p, &p->tasks[k], ops[k], k == 0);
                r = cop_batch_start(p, &p->tasks[k], ops[k], n, NULL, 0, err);
                started += r == 0;
        }
        for (size_t k = 0; k < started; k++) { /* all of them, also after an error: none may be left running */
                int w = cop_batch_wait(p, &p->tasks[k], ops[k], k == 0 ? OP_COUNT : OP_THREAD_COUNT, NULL, 0,
                                       r == 0 ? err : NULL);
                r = r == 0 ? w : r;
        }
        return r;
}

static bool holds_signal(const struct cop_dump *d, uint32_t first, uint32_t count, int sig)
{
        for (uint32_t i = 0; i < count; i++) {
                const struct img_signal *s = cop_image_record(d->writer, IMG_SIGNALS, first + i);
                if (s && *(const int32_t *)(const void *)s->info == sig)
                        return true;
        }
        return false;
}

/* A stop that was taken in the batch is to come; one that was seen is over when a SIGCONT came after. */
static enum img_proc_state state_of(const struct cop_dump *d, const struct cop_proc *p, const struct img_proc *ip)
{
        bool goes_on = holds_signal(d, ip->first_signal, ip->signals, SIGCONT);

        for (uint32_t k = 0; k < ip->threads; k++) {
                const struct img_thread *t = cop_image_record(d->writer, IMG_THREADS, ip->first_thread + k);
                if (p->tasks[k].took_stop)
                        return IMG_STOPPED;
                goes_on = goes_on || (t && holds_signal(d, t->first_signal, t->signals, SIGCONT));
        }
        return p->tasks[0].group_stop && !goes_on ? IMG_STOPPED : IMG_RUNNING;
}

/* What waitid() would tell the parent; nothing when info.si_pid is 0. */
static int ask_parent(struct cop_dump *d, uint32_t index, int options, siginfo_t *ret_info, struct cop_error *err)
{
        const struct cop_proc *p = &d->tree.procs[index];
        struct cop_proc *parent = &d->tree.procs[p->parent];
        struct cop_op ops[2];
        siginfo_t info = {0};

        ops[0] = cop_op(SYS_waitid, 0, P_PID, (uint64_t)p->nspid, cop_batch_data(parent, &parent->tasks[0], 0),
                        (uint64_t)options | WNOHANG | WNOWAIT | __WALL, 0, 0);
        int r = cop_batch_start(parent, &parent->tasks[0], ops, 1, &info, sizeof(info), err);
        if (r == 0)
                r = cop_batch_wait(parent, &parent->tasks[0], ops, 1, &info, sizeof(info), err);
        if (r == 0 && ops[0].result < 0)
                info.si_pid = 0;
        *ret_info = info;
        return r;
}

/* The kernel does not tell an owner how a process ended that has changed its ids: its stat says 0. */
static int dump_zombie(struct cop_dump *d, uint32_t index, struct img_proc *ip, const struct cop_procfs_stat *stat,
                       const struct cop_procfs_status *status, struct cop_error *err)
{
        siginfo_t info = {0};
        int r = d->guest && stat->exit_code == 0 ? ask_parent(d, index, WEXITED, &info, err) : 0;

        ip->state = IMG_ZOMBIE;
        ip->exit_status = info.si_pid == 0             ? stat->exit_code
                          : info.si_code == CLD_EXITED ? info.si_status << 8
                                                       : info.si_status;
        ip->uid = cop_dump_uid(d, status->uid);
        ip->gid = cop_dump_gid(d, status->gid);
        ip->comm = cop_image_puts(d->writer, stat->comm);
        return r;
}

/* Asks the parent whether a stop is left to be waited for. */
static int dump_stop(struct cop_dump *d, uint32_t index, struct img_proc *ip, struct cop_error *err)
{
        const struct cop_proc *p = &d->tree.procs[index];
        siginfo_t info = {0};

        ip->state = state_of(d, p, ip);
        ip->stop_signal = p->tasks[0].stop_signal;
        if (ip->state != IMG_STOPPED || p->parent == IMG_NONE)
                return 0;
        if (!p->tasks[0].group_stop) {
                ip->stop_told = IMG_STOP_NEW;
                return 0;
        }
        int r = ask_parent(d, index, WSTOPPED, &info, err);
        ip->stop_told = r == 0 && info.si_pid == 0 ? IMG_STOP_WAITED : IMG_STOP_SENT;
        return r;
}

static int dump_live(struct cop_dump *d, uint32_t index, struct img_proc *ip, const struct cop_procfs_stat *stat,
                     struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[index];
        struct cop_op(*ops)[COP_SLOT_OPS] = calloc(p->task_count, sizeof(*ops));
        _cleanup_free_ _unused_ void *ops_owner = ops;
        _cleanup_free_ struct answers *a = malloc(sizeof(*a));
        struct cop_timers timers;
        int r;

        if (!ops || !a)
                return cop_error_errno(err, ENOMEM, "collecting pid %d", p->nspid);
        r = find_instruction(d, index, ip, err);
        if (r == 0)
                r = start_batches(p, find_vdso(&d->vmas[index]), ops, err);
        if (r == 0)
                r = cop_timers_collect(d, index, &timers, err);
        ip->first_thread = cop_image_count(d->writer, IMG_THREADS);
        for (size_t k = 0; r == 0 && k < p->task_count; k++) {
                r = cop_mem_read(p, cop_batch_data(p, &p->tasks[k], 0), a, sizeof(*a));
                if (r < 0)
                        return cop_error_errno(err, -r, "reading the answers of thread %d", p->tasks[k].tid);
                if (k == 0 && ops[0][OP_LDT].result > 0)
                        return cop_not_freezable(d, index, err, "has segments of its own (modify_ldt)");
                r = dump_thread(d, index, &p->tasks[k], ops[k], a, &timers, err);
                if (r == 0 && k == 0)
                        r = dump_process(d, p, ip, a, ops[0], stat, err);
        }
        ip->threads = (uint32_t)p->task_count;
        if (r == 0) {
                struct img_ref shared = dump_signals(d, p->tasks[0].tid, PTRACE_PEEKSIGINFO_SHARED, &timers);
                ip->first_signal = shared.offset;
                ip->signals = shared.length;
                r = cop_dump_timers(d, index, ip, &timers, err);
        }
        return r == 0 ? dump_stop(d, index, ip, err) : r;
}

static int dump_each(struct cop_dump *d, struct sharing *sharing, struct cop_error *err)
{
        struct namespaces first;
        int depth = 0;

        for (uint32_t i = 0; i < d->tree.count; i++) {
                struct cop_proc *p = &d->tree.procs[i];
                struct img_proc ip = {.pid = p->nspid,
                                      .parent = p->parent,
                                      .tty = IMG_NONE,
                                      .exe = IMG_NONE,
                                      .cwd_file = IMG_NONE,
                                      .root_file = IMG_NONE};
                struct cop_procfs_stat stat;
                struct cop_procfs_status status;
                int r = cop_procfs_stat(p->dir_fd, &stat, err);
                if (r >= 0)
                        r = cop_procfs_status(p->dir_fd, &status, err);
                if (r < 0)
                        return r;
                depth = i == 0 ? status.ns_depth : depth;
                if (status.ns_depth != depth)
                        return cop_not_freezable(d, i, err, "lives in a pid namespace of its own");
                ip.pgid = status.ns_pgid;
                ip.sid = status.ns_sid;
                ip.umask = status.umask;
                ip.exit_signal = stat.exit_signal;
                if (p->zombie) {
                        r = dump_zombie(d, i, &ip, &stat, &status, err);
                        if (r < 0)
                                return r;
                } else {
                        ip.leader_ended = p->leader_ended;
                        if (p->leader_ended) {
                                ip.exit_signal = p->exit_signal;
                                ip.exit_status = p->exit_code;
                                ip.comm = cop_image_puts(d->writer, p->comm);
                        }
                        p->locked_kb = status.locked_kb;
                        look_for_traps(p, &status);
                        r = check_namespaces(d, i, &first, err);
                        if (r == 0)
                                r = check_sharing(d, i, sharing, &ip, err);
                        if (r == 0)
                                r = dump_live(d, i, &ip, &stat, err);
                        if (r < 0)
                                return r;
                }
                cop_image_add(d->writer, IMG_PROCS, &ip);
        }
        return 0;
}

/* Can a thaw make the tree? */
static int check_births(struct cop_dump *d, struct cop_error *err)
{
        uint32_t n = cop_image_count(d->writer, IMG_PROCS), index = 0;
        _cleanup_free_ struct cop_birth *births = malloc(n * sizeof(*births));
        const struct img_proc *procs = cop_image_record(d->writer, IMG_PROCS, 0);
        const char *why;
        int r = births && procs ? cop_births_plan(procs, n, births, &index, &why) : -ENOMEM;

        if (r == -ENOMEM)
                return cop_error_errno(err, ENOMEM, "planning the tree");
        return r < 0 ? cop_not_freezable(d, index, err, "%s", why) : 0;
}

int cop_dump_procs(struct cop_dump *d, struct cop_error *err)
{
        struct sharing sharing = {0};
        int r = sharing_init(&sharing, d->tree.count, err);

        if (r == 0)
                r = dump_each(d, &sharing, err);
        if (r == 0)
                r = check_births(d, err);
        sharing_done(&sharing);
        return r;
}
