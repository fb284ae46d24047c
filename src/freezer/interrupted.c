/* System calls that the stop of a freeze interrupted.
 *
 * At a ptrace stop the kernel has left one of these in rax, with the call's number in orig_rax and rip after the
 * instruction; a live thread that goes on restarts the call by itself, but a thawed one is a new thread whose kernel side
 * knows nothing, so the image's registers are turned back to the instruction:
 *
 *      ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND     rax = orig_rax, rip -= 2
 *      ERESTART_RESTARTBLOCK                           the same: the call begins again.  clock_nanosleep, nanosleep, poll and
 *                                                      futex keep their end in the kernel, which a live thread goes on with
 *      EINTR of epoll_wait, rt_sigtimedwait, semop,    the kernel never restarts these: the same, also for a source that
 *      recv with SO_RCVTIMEO …                         runs on (a program must not see an EINTR that no signal caused)
 *
 * A call with a restart block that is interrupted once more has the number of restart_syscall: restarted.c tells which it is.
 * A call that begins again has its full time limit again; waits.h has what gives it the rest only.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

#include "freezer/tracee.h"

#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* An EINTR at a stop of ours came from that stop: had a signal been delivered, the thread would be in its handler.  But restart_syscall
 * gives it when a handler has run since the call was interrupted; and close and connect must not be made twice. */
static bool repeatable(uint64_t nr)
{
        return nr != SYS_close && nr != SYS_connect && nr != SYS_restart_syscall;
}

struct cop_call cop_call_of(const struct user_regs_struct *r)
{
        return (struct cop_call){(uint32_t)r->orig_rax, {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9}, r->rsp, r->rip};
}

/* Calls that count from when they began.  select, pselect and ppoll are not among them: they write what is left over their argument. */
static const struct cop_limit limits[] = {
        {.nr = SYS_nanosleep, .arg = 0, .rest = 1, .block = true},
        {.nr = SYS_clock_nanosleep, .arg = 2, .rest = 3, .block = true},
        {.nr = SYS_poll, .arg = 2, .rest = -1, .ms = true, .block = true},
        {.nr = SYS_futex, .arg = 3, .rest = -1, .block = true, .result = -ETIMEDOUT},
        {.nr = SYS_epoll_wait, .arg = 3, .rest = -1, .ms = true},
        {.nr = SYS_epoll_pwait, .arg = 3, .rest = -1, .ms = true},
        {.nr = SYS_epoll_pwait2, .arg = 3, .rest = -1},
        {.nr = SYS_rt_sigtimedwait, .arg = 2, .rest = -1, .result = -EAGAIN},
        {.nr = SYS_semtimedop, .arg = 3, .rest = -1, .result = -EAGAIN},
};

/* Of clock_nanosleep and futex only the forms that count so, and on clocks that go on while the thread does not run. */
static bool counts_from_begin(uint64_t nr, const uint64_t arg[6])
{
        if (nr == SYS_clock_nanosleep)
                return !(arg[1] & TIMER_ABSTIME) && ((int)arg[0] == CLOCK_MONOTONIC || (int)arg[0] == CLOCK_REALTIME ||
                                                     (int)arg[0] == CLOCK_BOOTTIME || (int)arg[0] == CLOCK_TAI);
        return nr != SYS_futex || (arg[1] & ~0x180ULL) == 0;
}

bool cop_call_limit(const struct cop_call *call, struct cop_limit *ret)
{
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
                if (limits[i].nr == call->nr && counts_from_begin(call->nr, call->arg) &&
                    (limits[i].ms ? (int)call->arg[limits[i].arg] > 0 : call->arg[limits[i].arg] != 0)) {
                        *ret = limits[i];
                        return true;
                }
        return false;
}

bool cop_was_interrupted(const struct user_regs_struct *regs)
{
        if ((int64_t)regs->orig_rax < 0)
                return false;
        switch (-(int64_t)regs->rax) {
        case ERESTARTSYS:
        case ERESTARTNOINTR:
        case ERESTARTNOHAND:
        case ERESTART_RESTARTBLOCK:
                return true;
        case EINTR:
                return repeatable((uint32_t)regs->orig_rax);
        default:
                return false;
        }
}

bool cop_rewind_interrupted(struct user_regs_struct *regs)
{
        if (!cop_was_interrupted(regs))
                return false;
        regs->rax = regs->orig_rax;
        regs->rip -= 2;
        regs->orig_rax = (unsigned long long)-1;
        return true;
}

/* The kernel takes the lower half of rax for the number, keeps all of it as orig_rax, and gives the result in its place: so the upper half
 * of a call that begins again is known at its next stop, and the program never sees it. */
void cop_mark_interrupted(struct user_regs_struct *regs, bool restart, uint32_t mark)
{
        if (cop_was_interrupted(regs)) {
                regs->rax = restart ? SYS_restart_syscall : (uint32_t)regs->orig_rax;
                regs->rip -= 2;
                regs->orig_rax = (unsigned long long)-1;
        }
        regs->rax = (uint32_t)regs->rax | (uint64_t)mark << 32;
}

void cop_resume_interrupted(struct user_regs_struct *regs, int64_t result)
{
        regs->orig_rax = regs->rax;
        regs->rip += 2;
        regs->rax = (uint64_t)result;
}
