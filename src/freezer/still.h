/* Proof that a running tree is as its last image has it.
 *
 * Theory of operation.  A session at rest does nothing: its threads sleep in the calls in which the last freeze found them.  Who wants
 * its state again can have that image then, instead of one more.  That is right only if it is proven, and what is not proven counts as
 * not so.  A freeze notes of each thread in which call it slept when it was stopped, and, when the tree has gone on, how often it has
 * been on a CPU.  Later all of these must hold:
 *
 *      every thread sleeps in that same call, with the same arguments, stack pointer and instruction pointer, and has not been on a
 *      CPU since (/proc/PID/task/TID/syscall, schedstat: not one event was handled, however short; new threads, processes, files
 *      and connections need somebody to make them);
 *      nothing was written since the stop, as the tracker knows, but the areas for restartable sequences, into which the kernel writes
 *      when a thread goes on; the rest of their pages is as in the image.
 *
 * The second is for the moment between the stop and the first look at the threads, and so it is looked at once; later questions are about
 * the first alone.  A thread that comes back from its call and sleeps in it again has called functions, and so written to its stack.
 * Where a thread's stack pointer is in the page of such an area, that would not be seen: then nothing is proven.
 *
 * Time has gone on meanwhile: monotonic clocks of a copy, and time limits in it, go on from the image, as after a sleep.
 *
 * Kernel: CONFIG_SCHED_INFO; without it nothing is ever proven.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "freezer/tracee.h"

struct cop_still_thread {
        pid_t pid, tid;
        struct cop_call call;
        uint64_t rseq; /* address of its area for restartable sequences, 0: none */
        uint32_t rseq_size;
        uint64_t slices; /* how often it has been on a CPU */
};

struct cop_still {
        struct cop_still_thread *list; /* owned */
        size_t count;
        bool noted, settled, proven; /* proven: nothing had been written when all slept again */
};

/* In the stop, before registers are changed for going on. */
void cop_still_note(struct cop_still *s, const struct cop_tree *tree);
/* The tree runs on; waits a moment for its threads to sleep again. */
void cop_still_settle(struct cop_still *s);
void cop_still_forget(struct cop_still *s);
