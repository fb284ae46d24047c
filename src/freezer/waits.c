#include "freezer/waits.h"

#include <fcntl.h>
#include <linux/rseq.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/procfs.h"

#define SEC_NS 1000000000ULL
#define FOREVER (UINT64_MAX / 4) /* some hundred years; sums of two do not overflow */
#define CPUS_MAX 8               /* that the engine goes to for one freeze */

/* Known of a thread of a running tree. */
struct record {
        pid_t tid;
        struct cop_call call;
        struct cop_limit limit;
        uint64_t end;
        uint32_t mark;
};

struct cop_waits {
        int timer_fd;
        struct record *list; /* owned */
        size_t count;
        uint32_t mark; /* the last that was given */
};

static uint64_t now_ns(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * SEC_NS + (uint64_t)ts.tv_nsec;
}

struct cop_waits *cop_waits_new(void)
{
        struct cop_waits *w = calloc(1, sizeof(*w));

        if (w)
                w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (w && w->timer_fd < 0) {
                free(w);
                w = NULL;
        }
        if (w)
                w->mark = (uint32_t)now_ns(); /* not one that an earlier engine gave */
        return w;
}

void cop_waits_free(struct cop_waits *w)
{
        if (!w)
                return;
        close(w->timer_fd);
        free(w->list);
        free(w);
}

int cop_waits_fd(const struct cop_waits *w)
{
        return w->timer_fd;
}

/* The next end that is ours to bring about. */
static bool arm(const struct cop_waits *w)
{
        struct itimerspec its = {0};
        uint64_t first = UINT64_MAX;

        for (size_t i = 0; i < w->count; i++)
                if (!w->list[i].limit.block && w->list[i].end < first)
                        first = w->list[i].end;
        if (first != UINT64_MAX) {
                its.it_value.tv_sec = (time_t)(first / SEC_NS);
                its.it_value.tv_nsec = (long)(first % SEC_NS) + (first == 0);
        }
        timerfd_settime(w->timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
        return first != UINT64_MAX;
}

bool cop_waits_pending(const struct cop_waits *w)
{
        for (size_t i = 0; i < w->count; i++)
                if (!w->list[i].limit.block)
                        return true;
        return false;
}

void cop_waits_clear(struct cop_waits *w)
{
        if (!w)
                return;
        w->count = 0;
        arm(w);
}

int cop_waits_save(const struct cop_waits *w, const char *path, struct cop_error *err)
{
        return cop_write_file_unsynced(AT_FDCWD, path, w->list, w->count * sizeof(*w->list), 0600, err);
}

int cop_waits_load(struct cop_waits *w, const char *path, struct cop_error *err)
{
        char *text = NULL;
        size_t n;
        int r = cop_read_file(AT_FDCWD, path, 1UL << 24, &text, &n, err);

        if (r < 0)
                return r;
        free(w->list);
        w->list = (struct record *)(void *)text;
        w->count = n / sizeof(*w->list);
        arm(w);
        return 0;
}

/* ---- what /proc says ---- */

bool cop_call_slept_in(int at_fd, const char *task, struct cop_call *ret)
{
        unsigned long long v[8];
        struct cop_call c = {0};
        char path[64], text[256];
        int nr;

        snprintf(path, sizeof(path), "%s/syscall", task);
        if (!cop_procfs_text(at_fd, path, text, sizeof(text)) ||
            sscanf(text, "%d %llx %llx %llx %llx %llx %llx %llx %llx", &nr, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
                   &v[6], &v[7]) != 9 ||
            nr < 0)
                return false;
        c.nr = (uint64_t)nr;
        for (int i = 0; i < 6; i++)
                c.arg[i] = v[i];
        c.sp = v[6];
        c.pc = v[7];
        *ret = c;
        return true;
}

/* How often it gave up its CPU (so often it has slept), and when it last ran, in ns of its CPU's clock: 0, where the kernel does not
 * tell.  UINT64_MAX: it is gone. */
static uint64_t slept(int at_fd, const char *task, uint64_t *ret_last_ran)
{
        unsigned long long ms, ns, count;
        char path[64], text[4096];

        snprintf(path, sizeof(path), "%s/sched", task);
        bool there = cop_procfs_text(at_fd, path, text, sizeof(text));
        const char *ran = there ? strstr(text, "se.exec_start") : NULL;
        const char *often = there ? strstr(text, "nr_voluntary_switches") : NULL;
        *ret_last_ran = ran && sscanf(ran, "se.exec_start : %llu.%6llu", &ms, &ns) == 2 ? ms * 1000000 + ns : 0;
        if (often && sscanf(often, "nr_voluntary_switches : %llu", &count) == 1)
                return count;
        snprintf(path, sizeof(path), "%s/status", task);
        return cop_procfs_text(at_fd, path, text, sizeof(text))
                       ? cop_procfs_field_u64(text, "voluntary_ctxt_switches", 10)
                       : UINT64_MAX;
}

/* By the kernel's function: those of sleeps count as the scheduler's, which are left out, so that it is whatever has called them. */
static enum cop_asleep_in asleep_in(int at_fd, const char *task)
{
        char path[64], name[128];

        snprintf(path, sizeof(path), "%s/wchan", task);
        if (!cop_procfs_text(at_fd, path, name, sizeof(name)) ||
            strcmp(name, "0") == 0) /* it runs, or the kernel does not tell */
                return COP_ASLEEP_UNKNOWN;
        return strstr(name, "futex") ? COP_ASLEEP_FUTEX : strstr(name, "poll") ? COP_ASLEEP_POLL : COP_ASLEEP_SLEEP;
}

void cop_waits_look(const struct cop_proc *p, struct cop_task *t)
{
        struct cop_wait *w = &t->wait;
        struct cop_limit limit;
        struct cop_call again;
        char task[32], path[64], text[1024];
        const char *close;

        *w = (struct cop_wait){.record = IMG_NONE};
        snprintf(task, sizeof(task), "task/%d", t->tid);
        if (!cop_call_slept_in(p->dir_fd, task, &w->call))
                return;
        if (w->call.nr == SYS_restart_syscall)
                w->in = asleep_in(p->dir_fd, task);
        else if (!cop_call_limit(&w->call, &limit))
                return;
        if (w->in == COP_ASLEEP_POLL && (int)w->call.arg[2] < 0) /* without a limit, as most */
                return;
        w->switches = slept(p->dir_fd, task, &w->since);
        snprintf(path, sizeof(path), "%s/stat", task);
        if (w->since == 0 || !cop_procfs_text(p->dir_fd, path, text, sizeof(text)) || !(close = strrchr(text, ')')))
                return;
        for (int field = 2; field < 39 && close; field++)
                close = strchr(close + 1, ' ');
        w->cpu = close ? atoi(close + 1) : -1;
        /* Last, so that between this and the interrupt there is no time for another call. */
        w->asleep = close && cop_call_slept_in(p->dir_fd, task, &again) && memcmp(&w->call, &again, sizeof(again)) == 0;
}

/* ---- freeze ---- */

bool cop_call_same_place(const struct cop_call *a, const struct cop_call *b)
{
        return memcmp(a->arg, b->arg, sizeof(a->arg)) == 0 && a->sp == b->sp && a->pc == b->pc;
}

static bool read_time(const struct cop_proc *p, uint64_t address, uint64_t *ret)
{
        struct timespec ts;

        if (cop_mem_read(p, address, &ts, sizeof(ts)) < 0 || ts.tv_sec < 0 || ts.tv_nsec < 0 ||
            ts.tv_nsec >= (long)SEC_NS)
                return false;
        *ret = (uint64_t)ts.tv_sec >= FOREVER / SEC_NS ? FOREVER : (uint64_t)ts.tv_sec * SEC_NS + (uint64_t)ts.tv_nsec;
        return true;
}

/* The scheduler may move a thread that has just fallen asleep, and with it nothing tells any more whose clock its time is.  The thread's
 * area for restartable sequences has the CPU on which it last was in user mode. */
static bool slept_here(const struct cop_proc *p, const struct cop_task *t)
{
        uint32_t cpu;

        return t->rseq && cop_mem_read(p, t->rseq + offsetof(struct rseq, cpu_id), &cpu, sizeof(cpu)) == 0 &&
               (int)cpu == t->wait.cpu;
}

static bool is_marked(const struct record *r, const struct user_regs_struct *regs)
{
        struct cop_call call = cop_call_of(regs);

        return regs->orig_rax >> 32 == r->mark && cop_call_same_place(&r->call, &call);
}

static const struct record *find_record(const struct cop_waits *w, pid_t tid, const struct user_regs_struct *regs)
{
        for (size_t i = 0; w && i < w->count; i++)
                if (w->list[i].tid == tid && is_marked(&w->list[i], regs))
                        return &w->list[i];
        return NULL;
}

/* A thread that has not made its call again since it was marked. */
static bool stands_before(const struct cop_waits *w, struct cop_task *t)
{
        struct user_regs_struct regs = t->regs;

        if ((int64_t)regs.orig_rax >= 0)
                return false;
        regs.orig_rax = regs.rax;
        regs.rip += 2;
        const struct record *known = find_record(w, t->tid, &regs);
        if (!known)
                return false;
        t->wait.limited = true;
        t->wait.call = known->call;
        t->wait.limit = known->limit;
        t->wait.end = known->end;
        return true;
}

static void collect_task(const struct cop_waits *w, const struct cop_proc *p, struct cop_task *t)
{
        struct cop_wait *wait = &t->wait;
        struct cop_call call = cop_call_of(&t->regs);
        bool same = memcmp(&call, &wait->call, sizeof(call)) == 0, asleep = wait->asleep && same;
        const struct record *known = find_record(w, t->tid, &t->regs);
        uint64_t now = now_ns(), left;
        char task[32];

        wait->restarted = cop_restarted_call(p, &t->regs, same ? wait->in : COP_ASLEEP_UNKNOWN);
        if (wait->restarted)
                call.nr = wait->restarted = known ? known->limit.nr : wait->restarted;
        if (stands_before(w, t) || !cop_was_interrupted(&t->regs) || !cop_call_limit(&call, &wait->limit))
                return;
        uint64_t at = call.arg[wait->limit.arg];
        wait->length = (uint64_t)(int)at * 1000000;
        if (!wait->limit.ms && !read_time(p, at, &wait->length))
                return;
        wait->call = call;
        wait->limited = true;
        wait->end = now + wait->length;
        if (wait->limit.rest >= 0 && call.arg[wait->limit.rest] != 0) {
                if (read_time(p, call.arg[wait->limit.rest], &left) && left < wait->length)
                        wait->end = now + left;
                return;
        }
        if (known)
                wait->end = known->end;
        else if (asleep) {
                uint64_t last_ran;
                snprintf(task, sizeof(task), "task/%d", t->tid);
                wait->vague = slept(p->dir_fd, task, &last_ran) == wait->switches + 1; /* the stop was one more sleep */
        }
        wait->slept_here = wait->vague && slept_here(p, t);
        if (!wait->limit.block && wait->end <= now) {
                t->regs.rax = (uint64_t)wait->limit.result;
                wait->limited = false;
        }
}

void cop_waits_collect(const struct cop_waits *w, struct cop_tree *tree)
{
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++)
                        collect_task(w, &tree->procs[i], &tree->procs[i].tasks[k]);
}

/* 0: no memory, then it begins again unknown. */
static uint32_t add_record(struct cop_waits *w, struct record r)
{
        struct record *bigger = reallocarray(w->list, w->count + 1, sizeof(*bigger));

        if (!bigger)
                return 0;
        w->list = bigger;
        w->mark = (w->mark + 1) & INT32_MAX;
        w->mark += w->mark == 0;
        r.mark = w->mark;
        w->list[w->count++] = r;
        return r.mark;
}

void cop_waits_keep(struct cop_waits *w, struct cop_tree *tree)
{
        if (!w)
                return;
        w->count = 0;
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        struct cop_task *t = &tree->procs[i].tasks[k];
                        const struct cop_wait *wait = &t->wait;
                        if (wait->limited)
                                cop_mark_interrupted(
                                        &t->regs, wait->limit.block,
                                        add_record(w, (struct record){t->tid, wait->call, wait->limit, wait->end, 0}));
                }
}

/* The clock of a CPU, and ours at that time or a little later; 0: we may not go there, or are not told. */
struct cpu_clock {
        int cpu;
        uint64_t there, here;
};

static struct cpu_clock read_clock(int cpu)
{
        struct cpu_clock c = {.cpu = cpu};
        cpu_set_t old, one;

        CPU_ZERO(&one);
        if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(old), &old) < 0)
                return c;
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof(one), &one) < 0)
                return c;
        sched_yield(); /* the kernel takes the time */
        (void)slept(AT_FDCWD, "/proc/thread-self", &c.there);
        c.here = now_ns();
        sched_setaffinity(0, sizeof(old), &old);
        return c;
}

static const struct cpu_clock *find_clock(int cpu, struct cpu_clock *clocks, size_t *count)
{
        for (size_t i = 0; i < *count; i++)
                if (clocks[i].cpu == cpu)
                        return &clocks[i];
        if (*count == CPUS_MAX)
                return NULL;
        clocks[*count] = read_clock(cpu);
        return &clocks[(*count)++];
}

/* When the thread fell asleep, by our clock; UINT64_MAX: not to be known.  Where it is not sure whose clock it is, the latest. */
static uint64_t fell_asleep(const struct cop_wait *wait, struct cpu_clock *clocks, size_t *count)
{
        int first = wait->slept_here ? wait->cpu : 0;
        int last = wait->slept_here ? wait->cpu : (int)sysconf(_SC_NPROCESSORS_ONLN) - 1;
        uint64_t begin = 0;

        for (int cpu = first; cpu <= last; cpu++) {
                const struct cpu_clock *c = last - first < CPUS_MAX ? find_clock(cpu, clocks, count) : NULL;
                if (!c || c->there < wait->since || c->there - wait->since > c->here)
                        return UINT64_MAX;
                begin = MAX_OF(begin, c->here - (c->there - wait->since));
        }
        return begin;
}

void cop_waits_settle(struct cop_waits *w, struct cop_tree *tree, struct cop_image_writer *writer, int64_t offset)
{
        struct cpu_clock clocks[CPUS_MAX];
        size_t count = 0;

        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        struct cop_task *t = &tree->procs[i].tasks[k];
                        uint64_t begin = t->wait.vague ? fell_asleep(&t->wait, clocks, &count) : UINT64_MAX;
                        t->wait.vague = false;
                        if (begin == UINT64_MAX || begin + t->wait.length >= t->wait.end)
                                continue;
                        t->wait.end = begin + t->wait.length;
                        for (size_t m = 0; w && m < w->count; m++)
                                if (w->list[m].tid == t->tid)
                                        w->list[m].end = t->wait.end;
                        struct img_thread *it = writer && t->wait.record != IMG_NONE
                                                        ? cop_image_record(writer, IMG_THREADS, t->wait.record)
                                                        : NULL;
                        if (it && it->wait_end)
                                it->wait_end = t->wait.end + (uint64_t)offset;
                }
        if (w)
                arm(w);
}

/* ---- thaw ---- */

void cop_waits_enter(struct cop_proc *p, struct cop_task *t, uint64_t left, uint64_t scratch,
                     struct user_regs_struct *regs)
{
        struct cop_call call = cop_call_of(regs);
        struct cop_limit limit;
        struct user_regs_struct run = t->regs;
        struct timespec ts = {.tv_sec = (time_t)(left / SEC_NS), .tv_nsec = (long)(left % SEC_NS)};
        struct iovec local = {&ts, sizeof(ts)}, there = {(void *)(uintptr_t)scratch, sizeof(ts)};
        int status = 0;

        call.nr = regs->rax;
        if (!cop_call_limit(&call, &limit) || !limit.block)
                return;
        uint64_t ms = (left + 999999) / 1000000;
        call.arg[limit.arg] = limit.ms ? MIN_OF(ms, (uint64_t)INT32_MAX) : scratch;
        if (process_vm_writev(t->tid, &local, 1, &there, 1, 0) != sizeof(ts))
                return;
        run.rip = p->syscall_insn;
        run.rax = limit.nr;
        run.orig_rax = (uint64_t)-1;
        run.rdi = call.arg[0];
        run.rsi = call.arg[1];
        run.rdx = call.arg[2];
        run.r10 = call.arg[3];
        run.r8 = call.arg[4];
        run.r9 = call.arg[5];
        /* An interrupt that comes at the call's entry ends it before it sleeps. */
        if (ptrace(PTRACE_SETREGS, t->tid, 0, &run) < 0 || cop_run_to_trap(t, PTRACE_SYSCALL, NULL) < 0 ||
            ptrace(PTRACE_INTERRUPT, t->tid, 0, 0) < 0 || ptrace(PTRACE_CONT, t->tid, 0, 0) < 0 ||
            cop_wait_task(t->tid, &status) < 0 || !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, t->tid, 0, &run) < 0)
                return;
        cop_resume_interrupted(regs, (int64_t)run.rax);
        ptrace(PTRACE_SETREGS, t->tid, 0, &t->regs);
}

void cop_waits_add(struct cop_waits *w, pid_t tid, uint64_t left, struct user_regs_struct *regs)
{
        struct record r = {.tid = tid, .call = cop_call_of(regs), .end = now_ns() + MIN_OF(left, FOREVER)};
        bool entered = (int64_t)regs->orig_rax >= 0;

        if (!w || (entered && !cop_was_interrupted(regs))) /* it is over already */
                return;
        if (!entered) { /* it begins again, at the instruction */
                r.call.nr = (uint32_t)regs->rax;
                r.call.pc += 2;
        }
        if (cop_call_limit(&r.call, &r.limit))
                cop_mark_interrupted(regs, r.limit.block, add_record(w, r));
        arm(w);
}

/* ---- at the end ---- */

/* Only what still sleeps there is stopped. */
static bool sleeps_on(const struct record *r)
{
        struct cop_call call;
        char task[32];

        snprintf(task, sizeof(task), "/proc/%d", r->tid);
        return cop_call_slept_in(AT_FDCWD, task, &call) && call.nr == r->limit.nr &&
               cop_call_same_place(&call, &r->call);
}

/* Until the trap that the interrupt makes; signals that come first are let through. */
static bool wait_interrupt(pid_t tid)
{
        int status;

        while (cop_wait_task(tid, &status) == 0 && WIFSTOPPED(status)) {
                if (status >> 16 == PTRACE_EVENT_STOP)
                        return true;
                if (ptrace(PTRACE_CONT, tid, 0, status >> 16 ? 0 : WSTOPSIG(status)) < 0)
                        return false;
        }
        return false;
}

static void end_call(const struct record *r)
{
        struct user_regs_struct regs;

        if (!sleeps_on(r) || ptrace(PTRACE_SEIZE, r->tid, 0, 0) < 0)
                return;
        bool there = ptrace(PTRACE_INTERRUPT, r->tid, 0, 0) == 0 && wait_interrupt(r->tid) &&
                     ptrace(PTRACE_GETREGS, r->tid, 0, &regs) == 0;
        if (there && (int64_t)regs.rax == -EINTR) {
                if (is_marked(r, &regs))
                        regs.rax = (uint64_t)r->limit.result;
                else
                        cop_rewind_interrupted(&regs);
                ptrace(PTRACE_SETREGS, r->tid, 0, &regs);
        }
        cop_let_go(r->tid);
}

void cop_waits_dispatch(struct cop_waits *w)
{
        uint64_t now = now_ns(), ticks;

        (void)!read(w->timer_fd, &ticks, sizeof(ticks));
        for (size_t i = w->count; i-- > 0;) {
                if (w->list[i].limit.block || w->list[i].end > now)
                        continue;
                struct record r = w->list[i];
                w->list[i] = w->list[--w->count];
                end_call(&r);
        }
        arm(w);
}
