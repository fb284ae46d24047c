/* The call that restart_syscall goes on with.
 *
 * A call with a restart block (nanosleep, clock_nanosleep, poll, futex with a time limit) that a stop, ours or another, has
 * interrupted, goes on by restart_syscall: from then on the kernel tells this number for it.  A thawed thread has to make the call itself
 * anew.  Which one of the four it is, by what is surest:
 *
 *      The engine itself has interrupted it before and has marked it (waits.c): it knows.
 *      Where the thread slept just before the stop: /proc/PID/wchan names the kernel's function.  Not known of a thread that had
 *      not yet fallen asleep again.
 *      What its arguments would be to each: a register that the call does not take holds anything, and the address of a variable
 *      is as small as a number in a program that is not position independent, so it is the memory that counts which they
 *      point to.  The kernel has read it, and has written to it when it interrupted the call.  Two calls can still look the same
 *      then (a futex followed by what could be nanoseconds, with a time limit in r10 that nanosleep does not take); the likelier one
 *      is taken.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/cleanup.h"
#include "freezer/tracee.h"

#define CLOCKS_MAX 32
#define NFDS_MAX (1U << 20)
#define NFDS_LOOK 16 /* of which entries are read */

/* A time limit during which a call can have been interrupted. */
static bool read_limit(const struct cop_proc *p, uint64_t address, struct timespec *ret)
{
        return cop_mem_read(p, address, ret, sizeof(*ret)) == 0 && ret->tv_sec >= 0 && ret->tv_nsec >= 0 &&
               ret->tv_nsec < 1000000000 && (ret->tv_sec > 0 || ret->tv_nsec > 0);
}

/* At rest, if it was given, the kernel has written what was left. */
static bool is_sleep(const struct cop_proc *p, uint64_t length, uint64_t rest, struct timespec *ret)
{
        struct timespec left;

        return (rest == 0 || read_limit(p, rest, &left)) && read_limit(p, length, ret);
}

/* Those of CPU time are negative. */
static bool is_clock(uint64_t id)
{
        return id < CLOCKS_MAX || ((int)id < 0 && (id <= UINT32_MAX || (int64_t)id < 0));
}

static bool is_futex_wait(const struct cop_proc *p, const uint64_t arg[6], bool *ret_same)
{
        uint64_t op = arg[1] & ~(uint64_t)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        struct timespec limit;
        uint32_t word;

        if ((op != FUTEX_WAIT && (op != FUTEX_WAIT_BITSET || (uint32_t)arg[5] == 0)) || arg[0] % sizeof(word) != 0 ||
            cop_mem_read(p, arg[0], &word, sizeof(word)) < 0 || !read_limit(p, arg[3], &limit))
                return false;
        *ret_same = word == (uint32_t)arg[2];
        return true;
}

/* Nothing was ready when it was interrupted, and the kernel has written that. */
static bool is_poll(const struct cop_proc *p, const uint64_t arg[6])
{
        size_t n = MIN_OF(arg[1], (uint64_t)NFDS_LOOK);
        struct pollfd fds[NFDS_LOOK];

        if ((int)arg[2] == 0 || arg[1] > NFDS_MAX || (n > 0 && cop_mem_read(p, arg[0], fds, n * sizeof(fds[0])) < 0))
                return false;
        for (size_t i = 0; i < n; i++)
                if (fds[i].revents != 0)
                        return false;
        return true;
}

/* What somebody sleeps, be it for ever; no pointer, and no two small numbers side by side. */
static bool is_likely(const struct timespec *length)
{
        return length->tv_sec <= UINT32_MAX || length->tv_sec > INT64_MAX / 2;
}

static uint64_t tell(const struct cop_proc *p, const uint64_t arg[6], enum cop_asleep_in seen)
{
        struct timespec length;
        bool same = false, sleeps = is_sleep(p, arg[0], arg[1], &length);
        bool by_clock = !sleeps && is_clock(arg[0]) && is_sleep(p, arg[2], arg[3], &length);
        bool waits = is_futex_wait(p, arg, &same), polls = is_poll(p, arg);

        if (by_clock && (seen == COP_ASLEEP_SLEEP || seen == COP_ASLEEP_UNKNOWN))
                return SYS_clock_nanosleep;
        if (seen == COP_ASLEEP_SLEEP && sleeps)
                return SYS_nanosleep;
        if (seen == COP_ASLEEP_FUTEX && waits)
                return SYS_futex;
        if (seen == COP_ASLEEP_POLL)
                return SYS_poll;
        if (sleeps && ((!waits && !polls) || is_likely(&length)))
                return SYS_nanosleep;
        /* A word that is another by now: whoever changed it is about to wake the thread.  That is seldom, but so is a poll of no
         * descriptors at an address. */
        return waits && (same || !polls || arg[1] == 0) ? SYS_futex : SYS_poll;
}

static bool has_restart_block(uint64_t nr)
{
        return nr == SYS_nanosleep || nr == SYS_clock_nanosleep || nr == SYS_poll || nr == SYS_futex;
}

/* The kernel, or cop_mark_interrupted(), has turned it back to the instruction. */
static bool stands_before(const struct cop_proc *p, const struct user_regs_struct *regs)
{
        unsigned char code[2];

        return (uint32_t)regs->rax == SYS_restart_syscall && cop_mem_read(p, regs->rip, code, sizeof(code)) == 0 &&
               code[0] == 0x0f && code[1] == 0x05;
}

uint64_t cop_restarted_call(const struct cop_proc *p, const struct user_regs_struct *regs, enum cop_asleep_in seen)
{
        struct cop_call call = cop_call_of(regs);

        if (!cop_was_interrupted(regs)) {
                if (!stands_before(p, regs))
                        return 0;
                if ((int64_t)regs->orig_rax < 0) /* it has come to user mode since */
                        call.nr = SYS_restart_syscall;
                else if (has_restart_block(call.nr))
                        return call.nr;
        }
        return call.nr == SYS_restart_syscall ? tell(p, call.arg, seen) : 0;
}
