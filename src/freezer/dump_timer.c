/* POSIX timers.
 *
 * A periodic timer whose signal is pending counts how often it was over since (the signal's overruns), where nobody sees it
 * before the signal is taken.  So it is taken, which tells the count, and the timer is set, absolutely, to the time of its
 * first missed end: the kernel makes the signal again, and counts as it did.  That leaves the live timer as it was, and is what
 * a thaw does.  Timers of the real-time clock are left out: they would jump with it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"
#include "freezer/timers.h"

_Static_assert(COP_TIMERS_MAX + 2 <= COP_SLOT_OPS, "the slot has too few operations");

/* siginfo_t as the kernel has it, of a timer's signal. */
struct timer_info {
        int32_t signal, error, code, pad, id, overrun;
        uint64_t value, rest[12];
};
_Static_assert(sizeof(struct timer_info) == sizeof(struct img_signal), "a siginfo has 128 bytes");

/* In the scratch part of a slot. */
struct scratch {
        uint64_t set;
        int64_t none[2], now[2], left[4];
        struct timer_info info;
};
_Static_assert(sizeof(struct scratch) <= 256, "the scratch is too small");

static size_t parse_timers(struct cop_dump *d, const char *text, struct img_timer *list)
{
        size_t n = 0;

        for (const char *p = strstr(text, "ID: "); p;
             p = strstr(p + 4, "\nID: ") ? strstr(p + 4, "\nID: ") + 1 : NULL) {
                struct img_timer t = {0};
                unsigned long long value;
                char what[16], whom[8];
                int who = 0, clock = 0;
                if (sscanf(p, "ID: %d signal: %d/%llx notify: %15[a-z]/%7[a-z].%d ClockID: %d", &t.id, &t.signal,
                           &value, what, whom, &who, &clock) != 7)
                        continue;
                t.value_ptr = value;
                t.clock = clock;
                t.notify = strcmp(what, "none") == 0     ? SIGEV_NONE
                           : strcmp(what, "thread") == 0 ? SIGEV_THREAD
                                                         : SIGEV_SIGNAL;
                if (strcmp(whom, "tid") == 0) {
                        t.notify |= SIGEV_THREAD_ID;
                        t.tid = cop_pid_inside(d->tree.pidns_fd, who);
                }
                if (n < COP_TIMERS_MAX)
                        list[n] = t;
                n++;
        }
        return n;
}

static bool is_of(const struct img_timer *t, const struct timer_info *info)
{
        return info->code == SI_TIMER && info->signal == t->signal && info->id == t->id;
}

bool cop_timers_make(const struct cop_timers *timers, const struct img_signal *signal)
{
        const struct timer_info *info = (const void *)signal;

        for (size_t i = 0; i < timers->count; i++)
                if (timers->list[i].missed_ns && is_of(&timers->list[i], info))
                        return true;
        return false;
}

/* How many signals of the timer's number are pending; whether one of them is the timer's. */
static size_t count_pending(pid_t tid, unsigned flags, const struct img_timer *t, bool *ret_own)
{
        struct __ptrace_peeksiginfo_args args = {.flags = flags, .nr = 32};
        struct timer_info list[32];
        size_t count = 0;
        long n;

        while ((n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, list)) > 0) {
                for (long i = 0; i < n; i++) {
                        count += list[i].signal == t->signal;
                        *ret_own = *ret_own || is_of(t, &list[i]);
                }
                args.off += (uint64_t)n;
        }
        return count;
}

static int run(struct cop_proc *p, struct cop_task *t, struct cop_op *ops, size_t n, struct scratch *s,
               struct cop_error *err)
{
        int r = cop_mem_write(p, cop_batch_data(p, t, COP_SLOT_SCRATCH), s, sizeof(*s));

        if (r < 0)
                return cop_error_errno(err, -r, "writing to pid %d (%s)", p->nspid, p->comm);
        r = cop_batch_start(p, t, ops, n, NULL, 0, err);
        if (r == 0)
                r = cop_batch_wait(p, t, ops, n, NULL, 0, err);
        if (r == 0 && (r = cop_mem_read(p, cop_batch_data(p, t, COP_SLOT_SCRATCH), s, sizeof(*s))) < 0)
                return cop_error_errno(err, -r, "reading from pid %d (%s)", p->nspid, p->comm);
        return r;
}

static uint64_t ns_of(const int64_t ts[2])
{
        return (uint64_t)ts[0] * 1000000000 + (uint64_t)ts[1];
}

#define AT(field) cop_batch_data(p, t, COP_SLOT_SCRATCH + offsetof(struct scratch, field))

/* Takes the one pending signal of a timer, and sets the timer so that it makes it again. */
static int take_signal(struct cop_proc *p, struct cop_task *t, struct img_timer *timer, struct cop_error *err)
{
        struct scratch s = {.set = 1ULL << (timer->signal - 1)};
        uint64_t id = (uint64_t)timer->id;
        struct cop_op ops[5] = {cop_op(SYS_timer_gettime, 0, id, AT(left), 0, 0, 0, 0)};
        int r = run(p, t, ops, 1, &s, err);

        if (r < 0 || ops[0].result != 0 || ns_of(s.left) == 0) /* the signal of one that is over for good */
                return r;
        ops[0] = cop_op(SYS_rt_sigtimedwait, 0, AT(set), AT(info), AT(none), sizeof(s.set), 0, 0);
        ops[1] = cop_op(SYS_timer_gettime, 0, id, AT(left), 0, 0, 0, 0);
        ops[2] = cop_op(SYS_clock_gettime, 0, (uint64_t)timer->clock, AT(now), 0, 0, 0, 0);
        r = run(p, t, ops, 3, &s, err);
        if (r < 0 || ops[0].result != timer->signal)
                return r;
        uint64_t next = ns_of(s.now) + ns_of(s.left + 2), interval = ns_of(s.left);
        uint64_t passed = ((uint64_t)(s.info.overrun > 0 ? s.info.overrun : 0) + 1) * interval;
        timer->missed_ns = next > passed ? next - passed : 1;
        s.left[2] = (int64_t)(timer->missed_ns / 1000000000);
        s.left[3] = (int64_t)(timer->missed_ns % 1000000000);
        ops[0] = cop_op(SYS_timer_settime, 0, id, TIMER_ABSTIME, AT(left), 0, 0, 0);
        r = run(p, t, ops, 1, &s, err);
        return r == 0 && ops[0].result != 0
                       ? cop_error_errno(err, (int)-ops[0].result, "setting a timer of pid %d (%s)", p->nspid, p->comm)
                       : r;
}

/* Only a signal that is the only one of its number can be taken for sure. */
static int take_missed(struct cop_proc *p, struct img_timer *timer, struct cop_error *err)
{
        struct cop_task *t = &p->tasks[0];
        bool directed = timer->notify & SIGEV_THREAD_ID, own = false;

        if ((timer->notify & ~SIGEV_THREAD_ID) != SIGEV_SIGNAL || timer->signal < 1 || timer->signal > 64 ||
            (timer->clock != CLOCK_MONOTONIC && timer->clock != CLOCK_BOOTTIME))
                return 0;
        for (size_t k = 0; directed && k < p->task_count; k++)
                if (p->tasks[k].nstid == timer->tid)
                        t = &p->tasks[k];
        size_t count = count_pending(t->tid, 0, timer, &own);
        if (!directed)
                count += count_pending(t->tid, PTRACE_PEEKSIGINFO_SHARED, timer, &own);
        return own && count == 1 ? take_signal(p, t, timer, err) : 0;
}

int cop_timers_collect(struct cop_dump *d, uint32_t index, struct cop_timers *ret, struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[index];
        _cleanup_free_ char *text = NULL;
        int r = 0;

        ret->count = 0;
        if (cop_read_file(p->dir_fd, "timers", 1UL << 20, &text, NULL, NULL) < 0)
                return 0; /* no CONFIG_POSIX_TIMERS or no right: then there are none */
        size_t n = parse_timers(d, text, ret->list);
        if (n > COP_TIMERS_MAX)
                return cop_not_freezable(d, index, err, "has more than %d POSIX timers", COP_TIMERS_MAX);
        ret->count = n;
        for (size_t i = 0; i < n; i++)
                if (ret->list[i].id > COP_TIMER_NUMBER_MAX && !cop_timers_numbered())
                        return cop_not_freezable(d, index, err,
                                                 "has a POSIX timer with the number %d, which only kernels from 6.15 "
                                                 "on can give again",
                                                 ret->list[i].id);
        for (size_t i = 0; i < n && r == 0; i++)
                r = take_missed(p, &ret->list[i], err);
        return r;
}

int cop_dump_timers(struct cop_dump *d, uint32_t index, struct img_proc *ip, struct cop_timers *timers,
                    struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[index];
        struct cop_task *t = &p->tasks[0];
        struct cop_op ops[COP_TIMERS_MAX + 2];
        int64_t values[COP_TIMERS_MAX][4];
        size_t n = timers->count;

        if (n == 0)
                return 0;
        for (size_t i = 0; i < n; i++)
                ops[i] = cop_op(SYS_timer_gettime, 0, (uint64_t)timers->list[i].id,
                                cop_batch_data(p, t, i * sizeof(values[0])), 0, 0, 0, 0);
        int r = cop_batch_start(p, t, ops, n, NULL, 0, err);
        if (r == 0)
                r = cop_batch_wait(p, t, ops, n, values, sizeof(values), err);
        ip->first_timer = cop_image_count(d->writer, IMG_TIMERS);
        for (size_t i = 0; i < n && r == 0; i++) {
                timers->list[i].interval_ns = ns_of(values[i]);
                timers->list[i].value_ns = ns_of(values[i] + 2);
                cop_image_add(d->writer, IMG_TIMERS, &timers->list[i]);
                ip->timers++;
        }
        return r;
}
