/* The trampoline: a few dozen bytes of position-independent code that run a table of system calls.
 *
 * Theory of operation.  The same code serves both directions.  At freeze it is placed into the target, which is a
 * stranger's process, and runs the calls that only a process itself can make (its altstack, brk, timers …), ended by
 * COP_OP_STOP (int3, seen by ptrace).  At thaw it is what a new process runs while its own code, stack and data are
 * unmapped and the frozen ones put in their place, ended by COP_OP_PARK.  It uses registers only, no stack:
 *
 *      r12  the current struct cop_op        r13  the control block (shared with the engine at thaw)
 *
 * so that a clone of a thread can go on with a table of its own (COP_OP_CHILD).  A call that returns what it must not
 * ends the process (thaw: the engine finds the failed operation in the control block).
 */
#pragma once

#include <stdint.h>

#define COP_OP_CHECK 0x1U  /* an error return fails the table */
#define COP_OP_EXPECT 0x2U /* anything but `expect` fails it */
#define COP_OP_CHILD 0x4U  /* a clone: where it returns 0, go on at `child` */
#define COP_OP_STOP 0x8U   /* int3; when resumed, goes on with the next */
#define COP_OP_PARK \
        0x10U /* count oneself in, in the futex at arg[0] too unless that is 0; wake the engine, wait for ever */
#define COP_OP_RETRY 0x20U  /* EINTR and EAGAIN: again */
#define COP_OP_AWAIT 0x40U  /* wait until the futex at arg[0], 32 bits, is at least arg[1] */
#define COP_OP_FIRST 0x100U /* arg[0] is the address of the first argument */
#define COP_OP_TOUCH 0x80U  /* write to arg[1] pages, more than 0, from arg[0] on, changing nothing */

struct cop_op {
        uint32_t nr;
        uint32_t flags;
        uint64_t arg[6];
        int64_t result;
        int64_t expect;
        uint64_t child; /* address of a struct cop_op */
};

/* What `parked` is made of: how many threads have parked (a tree has no million), and above it how often there was something else. */
#define COP_NEWS_SHIFT 20
#define COP_NEWS(word) ((word) >> COP_NEWS_SHIFT)
#define COP_PARKED(word) ((word) & ((1U << COP_NEWS_SHIFT) - 1))

/* Offsets are known to tramp.S. */
struct cop_tramp_control {
        uint32_t parked; /* futex: COP_PARKED, COP_NEWS */
        uint32_t failed; /* pid-less flag, set by the first failure */
        uint64_t failed_op;
        int64_t failed_result;
        uint64_t failed_nr;
        uint64_t reserved[4];
};

extern const char cop_tramp_start[], cop_tramp_end[];
