/* System calls that the stop of a freeze interrupted.
 *
 * At a ptrace stop the kernel has left one of these in rax, with the call's number in orig_rax and rip after the
 * instruction; a live thread that goes on restarts the call by itself, but a thawed one is a new thread whose kernel side
 * knows nothing, so the image's registers are turned back to the instruction:
 *
 *      ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND     rax = orig_rax, rip -= 2
 *      ERESTART_RESTARTBLOCK                           the same: the call begins again.  clock_nanosleep, nanosleep, poll and
 *                                                      futex keep their remaining time in the kernel; see below
 *      EINTR of epoll_wait, rt_sigtimedwait, semop,    the kernel never restarts these: the same, also for a source that
 *      recv with SO_RCVTIMEO …                         runs on (a program must not see an EINTR that no signal caused)
 *
 * The remaining time of a restart block cannot be read from outside.  Relative sleeps begin again with their full time:
 * late by at most what had passed, never early.
 */
#include <errno.h>
#include <sys/syscall.h>

#include "freezer/dump.h"

#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* An EINTR at a stop of ours came from that stop: had a signal been delivered, the thread would be in its handler.  Only
 * for these two the call must not be made twice. */
static bool repeatable(uint64_t nr)
{
        return nr != SYS_close && nr != SYS_connect;
}

static bool pointer(uint64_t v)
{
        return v > UINT32_MAX && v < 0x800000000000;
}

/* A restarted call has the number of restart_syscall and the arguments of the first one: told from their shape.  A 32 bit
 * program could fool this; there are none here. */
static uint64_t restarted_call(const struct user_regs_struct *regs)
{
        if (!pointer(regs->rdi))
                return pointer(regs->rdx) ? SYS_clock_nanosleep : SYS_poll;
        if (pointer(regs->rsi))
                return SYS_nanosleep;
        uint64_t op = regs->rsi & ~0x180ULL; /* FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME */
        if ((op == 0 || op == 9) && pointer(regs->r10))
                return SYS_futex;
        return regs->rsi == 0 && regs->rdx > INT32_MAX ? SYS_nanosleep : SYS_poll;
}

bool cop_rewind_interrupted(struct user_regs_struct *regs)
{
        int64_t result = (int64_t)regs->rax;

        if ((int64_t)regs->orig_rax < 0)
                return false;
        switch (-result) {
        case ERESTARTSYS:
        case ERESTARTNOINTR:
        case ERESTARTNOHAND:
        case ERESTART_RESTARTBLOCK:
                break;
        case EINTR:
                if (repeatable(regs->orig_rax))
                        break;
                return false;
        default:
                return false;
        }
        regs->rax = regs->orig_rax == SYS_restart_syscall ? restarted_call(regs) : regs->orig_rax;
        regs->rip -= 2;
        regs->orig_rax = (unsigned long long)-1;
        return true;
}
