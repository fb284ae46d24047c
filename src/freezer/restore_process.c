/* The part of a process's table that makes all but its memory: threads, each of which sets its own state, limits, signals, timers, and
 * credentials last, since the steps before need rights.  See restore_mem.c for the rest. */
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore_table.h"
#include "freezer/timers.h"
#include "freezer/tracee.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif

int32_t cop_restore_timers_to(const struct cop_restore *r, const struct img_proc *p)
{
        int32_t highest = -1;

        for (uint32_t i = 0; i < p->timers; i++)
                highest = MAX_OF(highest, IMG_RECORD(r->image, IMG_TIMERS, img_timer, p->first_timer + i)->id);
        return highest >= 0 && !cop_timers_numbered() ? highest : -1;
}

size_t cop_restore_signals(const struct cop_restore *r, const struct img_proc *p)
{
        size_t n = p->signals + p->timers;

        for (uint32_t i = 0; i < p->threads; i++)
                n += RESTORE_THREAD(r, p->first_thread + i)->signals;
        return n;
}

static void add_creds(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct img_creds *c)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct caps[2] = {
                {(uint32_t)c->effective, (uint32_t)c->permitted, (uint32_t)c->inheritable},
                {(uint32_t)(c->effective >> 32), (uint32_t)(c->permitted >> 32), (uint32_t)(c->inheritable >> 32)},
        };

        cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0, 0);
        /* Root of a user namespace made with setgroups denied may not; then there were none. */
        cop_table_add(g, t, c->groups.length ? COP_OP_CHECK : 0, SYS_setgroups, c->groups.length / 4,
                      PTR(cop_region_put(g, cop_image_at(r->image, &c->groups), c->groups.length)), 0, 0, 0, 0);
        cop_table_add(g, t, COP_OP_CHECK, SYS_setresgid, c->gid[0], c->gid[1], c->gid[2], 0, 0, 0);
        cop_table_add(g, t, COP_OP_CHECK, SYS_setresuid, c->uid[0], c->uid[1], c->uid[2], 0, 0, 0);
        if (c->gid[3] != c->gid[1])
                cop_table_add(g, t, 0, SYS_setfsgid, c->gid[3], 0, 0, 0, 0, 0);
        if (c->uid[3] != c->uid[1])
                cop_table_add(g, t, 0, SYS_setfsuid, c->uid[3], 0, 0, 0, 0, 0);
        for (unsigned cap = 0; cap < 64; cap++)
                if (g->bounding & ~c->bounding & 1ULL << cap)
                        cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0, 0);
        cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_SECUREBITS, c->securebits, 0, 0, 0, 0);
        cop_table_add(g, t, COP_OP_CHECK, SYS_capset, PTR(cop_region_put(g, &header, sizeof(header))),
                      PTR(cop_region_put(g, caps, sizeof(caps))), 0, 0, 0, 0);
        for (unsigned cap = 0; cap < 64; cap++)
                if (c->ambient & 1ULL << cap)
                        cop_table_add(g, t, 0, SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0, 0);
}

static void add_signals(struct cop_restore *r, struct cop_region *g, struct cop_table *t, pid_t pid, pid_t tid,
                        struct img_ref range)
{
        for (uint32_t i = 0; i < range.length; i++) {
                const struct img_signal *s = IMG_RECORD(r->image, IMG_SIGNALS, img_signal, range.offset + i);
                uint64_t sig = (uint64_t) * (const int32_t *)(const void *)s->info;
                uint64_t info = PTR(cop_region_put(g, s->info, sizeof(s->info)));
                if (tid)
                        cop_table_add(g, t, COP_OP_CHECK, SYS_rt_tgsigqueueinfo, (uint64_t)pid, (uint64_t)tid, sig,
                                      info, 0, 0);
                else
                        cop_table_add(g, t, COP_OP_CHECK, SYS_rt_sigqueueinfo, (uint64_t)pid, sig, info, 0, 0, 0);
        }
}

static void add_scheduling(struct cop_region *g, struct cop_table *t, const struct img_thread *th)
{
        struct {
                uint32_t size, policy;
                uint64_t flags;
                int32_t nice;
                uint32_t priority;
                uint64_t runtime, deadline, period;
        } attr = {.size = 48, .policy = th->policy & ~(uint32_t)SCHED_RESET_ON_FORK, .nice = th->nice};

        bool real_time = attr.policy == SCHED_FIFO || attr.policy == SCHED_RR;

        attr.flags = th->policy & SCHED_RESET_ON_FORK ? SCHED_FLAG_RESET_ON_FORK : 0;
        attr.priority = real_time ? th->priority : 0;
        /* Always: what is inherited is the engine's.  SCHED_IDLE has a nice value, but does not take it with the policy. */
        cop_table_add(g, t, 0, SYS_setpriority, PRIO_PROCESS, 0, (uint64_t)(int64_t)th->nice, 0, 0, 0);
        cop_table_add(g, t, real_time ? COP_OP_CHECK : 0, SYS_sched_setattr, 0,
                      PTR(cop_region_put(g, &attr, sizeof(attr))), 0, 0, 0, 0);
}

static void add_modes(struct cop_region *g, struct cop_table *t, const struct img_thread *th)
{
        if (th->personality != (uint32_t)personality(UINT32_MAX)) /* a thread's own: inherited is the engine's */
                cop_table_add(g, t, 0, SYS_personality, th->personality, 0, 0, 0, 0, 0);
        if (th->tsc != PR_TSC_ENABLE)
                cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_TSC, th->tsc, 0, 0, 0, 0);
        if (!th->cpuid)
                cop_table_add(g, t, COP_OP_CHECK, SYS_arch_prctl, ARCH_SET_CPUID, 0, 0, 0, 0, 0);
        for (unsigned i = 0; i < 2; i++)
                if (th->speculation[i])
                        cop_table_add(g, t, 0, SYS_prctl, PR_SET_SPECULATION_CTRL, i, th->speculation[i], 0, 0, 0);
}

/* Are the first n filters of both the same? */
static bool filters_equal(const struct cop_image *image, const struct img_thread *a, const struct img_thread *b,
                          uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                const struct img_filter *x = IMG_RECORD(image, IMG_FILTERS, img_filter, a->first_filter + i),
                                        *y = IMG_RECORD(image, IMG_FILTERS, img_filter, b->first_filter + i);
                if (x->program.length != y->program.length ||
                    memcmp(cop_image_at(image, &x->program), cop_image_at(image, &y->program), x->program.length) != 0)
                        return false;
        }
        return true;
}

bool cop_restore_filters_late(const struct cop_image *image, const struct img_proc *p)
{
        const struct img_proc *root = IMG_RECORD(image, IMG_PROCS, img_proc, 0);
        const struct img_thread *theirs = IMG_RECORD(image, IMG_THREADS, img_thread, root->first_thread);
        const struct img_thread *own = IMG_RECORD(image, IMG_THREADS, img_thread, p->first_thread);
        bool late = p->leader_ended && p->threads > 1 && own->filters > 0;

        for (uint32_t i = 0; i < p->threads && !late; i++)
                late = own[i].seccomp_strict || own[i].filters != own->filters || own[i].filters > theirs->filters ||
                       !filters_equal(image, &own[i], theirs, own[i].filters);
        return late;
}

/* How many filters the first thread sets for all of its process (SECCOMP_FILTER_FLAG_TSYNC): those that all have had from the same hand.
 * The kernel wants that of who sets one for all later.  And it compiles each: 0.25 ms for ours. */
static uint32_t filters_together(const struct cop_image *image, const struct img_proc *p)
{
        const struct img_thread *own = IMG_RECORD(image, IMG_THREADS, img_thread, p->first_thread);
        uint32_t n = p->threads < 2 ? 0 : own->filters;

        for (uint32_t i = 1; i < p->threads && n > 0; i++) {
                n = own[i].creds.no_new_privs != own->creds.no_new_privs ? 0 : MIN_OF(n, own[i].filters);
                while (!filters_equal(image, own, &own[i], n))
                        n--;
        }
        return n;
}

static void add_filters(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct img_thread *th)
{
        const struct img_proc *p = RESTORE_PROC(r, r->self);
        bool first = th == RESTORE_THREAD(r, p->first_thread);

        /* When the others have done all that a filter may forbid. */
        if (g->arrived && first)
                cop_table_add(g, t, COP_OP_AWAIT, 0, PTR(g->arrived), p->threads - 1, 0, 0, 0, 0);
        for (uint32_t i = first ? 0 : g->together; i < th->filters; i++) {
                const struct img_filter *f = IMG_RECORD(r->image, IMG_FILTERS, img_filter, th->first_filter + i);
                struct sock_fprog prog = {.len = (unsigned short)(f->program.length / sizeof(struct sock_filter))};
                prog.filter = cop_region_put(g, cop_image_at(r->image, &f->program), f->program.length);
                /* For all threads, a failure is the id of one; expect is 0. */
                cop_table_add(g, t, COP_OP_CHECK | COP_OP_EXPECT, SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                              i < g->together ? SECCOMP_FILTER_FLAG_TSYNC : 0,
                              PTR(cop_region_put(g, &prog, sizeof(prog))), 0, 0, 0);
        }
}

static void add_thread(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct img_proc *p,
                       const struct img_thread *th)
{
        stack_t ss = {.ss_sp = (void *)th->altstack[0],
                      .ss_flags = (int)th->altstack[1] & ~SS_ONSTACK,
                      .ss_size = th->altstack[2]};

        cop_table_add(g, t, 0, SYS_prctl, PR_SET_NAME, PTR(cop_region_put(g, th->comm, sizeof(th->comm))), 0, 0, 0, 0);
        if (th->robust_list)
                cop_table_add(g, t, COP_OP_CHECK, SYS_set_robust_list, th->robust_list, th->robust_len, 0, 0, 0, 0);
        cop_table_add(g, t, 0, SYS_set_tid_address, th->tid_address, 0, 0, 0, 0, 0);
        if (th->rseq)
                cop_table_add(g, t, COP_OP_CHECK, SYS_rseq, th->rseq, th->rseq_size, 0, th->rseq_signature, 0, 0);
        if (th->altstack[2])
                cop_table_add(g, t, COP_OP_CHECK, SYS_sigaltstack, PTR(cop_region_put(g, &ss, sizeof(ss))), 0, 0, 0, 0,
                              0);
        if (th->timer_slack != 50000)
                cop_table_add(g, t, 0, SYS_prctl, PR_SET_TIMERSLACK, th->timer_slack, 0, 0, 0, 0);
        add_scheduling(g, t, th);
        add_modes(g, t, th);
        if (th->affinity.length)
                cop_table_add(g, t, 0, SYS_sched_setaffinity, 0, th->affinity.length,
                              PTR(cop_region_put(g, cop_image_at(r->image, &th->affinity), th->affinity.length)), 0, 0,
                              0);
        if (th->io_priority)
                cop_table_add(g, t, 0, SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, (uint64_t)th->io_priority, 0, 0,
                              0);
        /* Filters need rights or no_new_privs, and may forbid what else is to be done: as late as possible. */
        if (g->late)
                cop_table_add(g, t, COP_OP_PARK, 0, 0, 0, 0, 0, 0, 0);
        if (!th->creds.no_new_privs)
                add_filters(r, g, t, th);
        add_creds(r, g, t, &th->creds);
        /* Other ids make the process undumpable, and it is still to be seized; thaw.c sets what it was. */
        cop_table_add(g, t, 0, SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
        if (th->pdeath_signal)
                cop_table_add(g, t, 0, SYS_prctl, PR_SET_PDEATHSIG, (uint64_t)th->pdeath_signal, 0, 0, 0, 0);
        add_signals(r, g, t, p->pid, th->tid, (struct img_ref){th->first_signal, th->signals});
        if (th->creds.no_new_privs) {
                cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
                add_filters(r, g, t, th);
        }
        if (th->seccomp_strict)
                cop_table_add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0, 0);
}

static void add_end(struct cop_restore *r, struct cop_region *g, struct cop_table *t, const struct img_proc *p,
                    const struct img_thread *th)
{
        if (g->late && cop_restore_no_traps(r->image, p))
                cop_table_add(g, t, 0, SYS_getpid, COP_MARK, 0, 0, 0, 0, 0);
        else if (g->late)
                cop_table_add(g, t, COP_OP_STOP, 0, 0, 0, 0, 0, 0, 0);
        cop_table_add(g, t, COP_OP_PARK, 0, t == &g->main ? 0 : PTR(g->arrived), 0, 0, 0, 0, 0);
}

static void add_threads(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        size_t signals = cop_restore_signals(r, p);
        uint32_t first = p->leader_ended ? 0 : 1;

        for (uint32_t i = first; i < p->threads; i++) {
                const struct img_thread *th = RESTORE_THREAD(r, p->first_thread + i);
                int32_t tid = th->tid;
                struct clone_args args = {
                        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
                        .set_tid = PTR(cop_region_put(g, &tid, sizeof(tid))),
                        .set_tid_size = 1,
                };
                struct cop_table t = {.max = COP_THREAD_OPS + signals};
                t.ops = g->main.ops + g->main.max + (i - first) * t.max;
                add_thread(r, g, &t, p, th);
                add_end(r, g, &t, p, th);
                struct cop_op *op =
                        cop_table_add(g, &g->main, COP_OP_EXPECT | COP_OP_CHILD, SYS_clone3,
                                      PTR(cop_region_put(g, &args, sizeof(args))), sizeof(args), 0, 0, 0, 0);
                op->expect = tid;
                op->child = PTR(t.ops);
        }
}

/* Descriptors that tell a thread by a signal, in the name of whoever asked for it (restore_fd.c, set_owner). */
static void add_owners(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        for (uint32_t i = 0; i < p->fds; i++) {
                const struct img_fd *fd = IMG_RECORD(r->image, IMG_FDS, img_fd, p->first_fd + i);
                const struct img_file *f = RESTORE_FILE(r, fd->file);
                struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = f->owner[1]};
                bool other = f->owner_uid || f->owner_euid, own = false;
                if (!cop_restore_owner_late(r->image, f))
                        continue;
                for (uint32_t k = 0; k < p->threads && !own; k++)
                        own = RESTORE_THREAD(r, p->first_thread + k)->tid == owner.pid;
                if (!own)
                        continue;
                if (other)
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_setresuid, f->owner_uid, f->owner_euid, 0, 0, 0,
                                      0);
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_fcntl, (uint64_t)fd->fd, F_SETOWN_EX,
                              PTR(cop_region_put(g, &owner, sizeof(owner))), 0, 0, 0);
                if (other)
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_setresuid, 0, 0, 0, 0, 0, 0);
        }
}

/* A leader that is to end as soon as everything that is the process's is there.  It keeps nothing of its own, but whose it was. */
static void add_ended_leader(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        struct img_thread th = {.tid = p->pid, .timer_slack = 50000, .nice = 0, .tsc = PR_TSC_ENABLE, .cpuid = 1};

        g->late = false; /* it is not there any more when the others go on */
        th.creds = RESTORE_THREAD(r, p->first_thread)->creds;
        snprintf(th.comm, sizeof(th.comm), "%.15s", cop_restore_string(r, &p->comm));
        add_thread(r, g, &g->main, p, &th);
        cop_table_add(g, &g->main, 0, SYS_exit, (uint64_t)WEXITSTATUS(p->exit_status), 0, 0, 0, 0, 0);
}

static void add_posix_timer(struct cop_region *g, const struct img_timer *t)
{
        uint64_t value = t->missed_ns ? t->missed_ns : t->value_ns;
        int64_t spec[4] = {(int64_t)(t->interval_ns / 1000000000), (int64_t)(t->interval_ns % 1000000000),
                           (int64_t)(value / 1000000000), (int64_t)(value % 1000000000)};
        struct {
                uint64_t value;
                int32_t signal, notify, tid, pad[11];
        } event = {.value = t->value_ptr, .signal = t->signal, .notify = t->notify, .tid = t->tid};

        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_timer_create, (uint64_t)(int64_t)t->clock,
                      PTR(cop_region_put(g, &event, sizeof(event))), PTR(cop_region_put(g, &t->id, sizeof(t->id))), 0,
                      0, 0);
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_timer_settime, (uint64_t)t->id, t->missed_ns ? TIMER_ABSTIME : 0,
                      PTR(cop_region_put(g, spec, sizeof(spec))), 0, 0, 0);
}

/* A timer that only counts. */
static void skip_timer(struct cop_region *g, int32_t id)
{
        struct img_timer t = {.id = id, .notify = SIGEV_NONE, .clock = CLOCK_MONOTONIC};

        add_posix_timer(g, &t);
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_timer_delete, (uint64_t)id, 0, 0, 0, 0, 0);
}

static int compare_timers(const void *a, const void *b)
{
        const struct img_timer *x = a, *y = b;

        return x->id < y->id ? -1 : x->id > y->id;
}

static void add_posix_timers(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        bool counted = cop_restore_timers_to(r, p) >= 0;
        _cleanup_free_ struct img_timer *list = calloc(p->timers + 1, sizeof(*list));
        int32_t next = 0;

        if (p->timers == 0 || !list) {
                g->full = g->full || !list;
                return;
        }
        for (uint32_t i = 0; i < p->timers; i++)
                list[i] = *IMG_RECORD(r->image, IMG_TIMERS, img_timer, p->first_timer + i);
        qsort(list, p->timers, sizeof(*list), compare_timers);
        if (!counted)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0, 0);
        for (uint32_t i = 0; i < p->timers; next = list[i++].id + 1) {
                for (; counted && next < list[i].id; next++)
                        skip_timer(g, next);
                add_posix_timer(g, &list[i]);
        }
        if (!counted)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0, 0);
}

/* The real-time timer stands still from its end until its signal is taken, and shows nothing then but its interval: it is brought there
 * again by an end at once.  The signal is pending already, and a second one is the same. */
static void add_timers(struct cop_region *g, const struct img_proc *p)
{
        for (unsigned i = 0; i < 3; i++) {
                uint64_t t[4]; /* interval and value, s and us each */
                memcpy(t, p->itimers[i], sizeof(t));
                if (i == ITIMER_REAL && !t[2] && !t[3] && (t[0] || t[1]))
                        t[3] = 1;
                if (t[2] || t[3])
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_setitimer, i, PTR(cop_region_put(g, t, sizeof(t))),
                                      0, 0, 0, 0);
        }
}

/* Before there are threads, for whom the kernel would have to wait. */
static void add_membarrier(struct cop_region *g, const struct img_proc *p)
{
        for (uint32_t command = 1; command && command <= p->membarrier; command <<= 1)
                if (p->membarrier & command)
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_membarrier, command, 0, 0, 0, 0, 0);
}

/* What is said of memory to come, once all is there. */
static void add_memory_modes(struct cop_region *g, const struct img_proc *p)
{
        if (p->lock_future)
                cop_table_add(g, &g->main, 0, SYS_mlockall, p->lock_future, 0, 0, 0, 0, 0);
        if (p->memory_merge)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MEMORY_MERGE, 1, 0, 0, 0, 0);
        if (p->mdwe)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MDWE, p->mdwe, 0, 0, 0, 0);
}

static void add_limits(struct cop_region *g, const struct img_proc *p)
{
        for (unsigned i = 0; i < 16; i++)
                cop_table_add(g, &g->main, 0, SYS_prlimit64, 0, i,
                              PTR(cop_region_put(g, p->rlimits[i], sizeof(p->rlimits[i]))), 0, 0, 0);
}

void cop_restore_state(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        g->late = cop_restore_filters_late(r->image, p);
        g->together = filters_together(r->image, p);
        if (g->together > 0 && !g->late)
                g->arrived = memset(cop_region_put(g, NULL, sizeof(*g->arrived)), 0, sizeof(*g->arrived));
        for (int cap = 0, has; cap < 64 && (has = prctl(PR_CAPBSET_READ, cap)) >= 0; cap++)
                g->bounding |= has ? 1ULL << cap : 0;
        add_membarrier(g, p);
        add_threads(r, g, p);
        add_owners(r, g, p);
        add_memory_modes(g, p);
        add_limits(g, p);
        add_signals(r, g, &g->main, p->pid, 0, (struct img_ref){p->first_signal, p->signals});
        add_timers(g, p);
        add_posix_timers(r, g, p);
        if (!p->leader_ended)
                add_thread(r, g, &g->main, p, RESTORE_THREAD(r, p->first_thread));
        if (p->mce_kill != PR_MCE_KILL_DEFAULT)
                cop_table_add(g, &g->main, 0, SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_SET, p->mce_kill, 0, 0, 0);
        if (p->leader_ended)
                add_ended_leader(r, g, p);
        else
                add_end(r, g, &g->main, p, RESTORE_THREAD(r, p->first_thread));
}
