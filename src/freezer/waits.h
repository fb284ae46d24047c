/* Time limits of calls that a freeze or a thaw interrupts.
 *
 * Theory of operation.  A call with a limit that counts from its begin (interrupted.c has which) has its end in the kernel,
 * where nobody can read it.  What is known of it:
 *
 *      nanosleep and clock_nanosleep that were given an address for the rest write it there when they are interrupted.
 *      A thread that slept in the call until it was stopped has slept since se.exec_start of /proc/PID/sched, read just before
 *      the stop; its voluntary switches tell that it did not wake up in between.  The clock of that number is its CPU's, which
 *      leaves out stolen time and interrupts and is another one on each CPU: "now" is what the engine itself has for exec_start
 *      on that CPU, where it goes after the stop (on all, when it is not sure which one it was).  As that clock is never fast,
 *      and a call begins before it sleeps, the end is never too early; late by what was stolen meanwhile.
 *      What the engine knew when the tree went on from a freeze or a thaw: it has then marked the call (interrupted.c).
 *
 * Where nothing is known the limit counts from now, as if the call had just begun.  So it is on a kernel without /proc/PID/sched.
 *
 * What is made of it.  Calls that have a restart block (enum below: nanosleep, poll, futex) go on by themselves in a tree that
 * runs on.  In a thaw the new thread makes the call once more with what is left, is interrupted in it at once, and is then given
 * its registers: its restart block has the right end.  For the others (epoll_wait, sigtimedwait, semtimedop) the kernel has
 * nothing of the kind, and no register may be changed that the program sees afterwards: they begin with their full time, and at
 * their end the engine interrupts the thread, if it still sleeps there, and gives it the result of the call whose time is over.
 * This is what struct cop_waits is for, which the caller serves as long as the tree lives; see freezer.h.
 *
 * Not known: SO_RCVTIMEO and SO_SNDTIMEO.  Those begin again with their full time.
 */
#pragma once

#include "freezer/freezer.h"
#include "freezer/tracee.h"

struct cop_image_writer;

/* Just before a thread is stopped. */
void cop_waits_look(const struct cop_proc *p, struct cop_task *t);
/* All are stopped and their registers read: what is known by now.  A call whose time is over gets its result.  w may be NULL. */
void cop_waits_collect(const struct cop_waits *w, struct cop_tree *tree);
/* The tree is about to go on: marks the calls whose end is known, in the registers.  w may be NULL. */
void cop_waits_keep(struct cop_waits *w, struct cop_tree *tree);
/* Outside of the pause: asks the clocks, corrects what was kept and the records of the image (writer may be NULL; offset: ns that the
 * tree's monotonic clock is ahead of ours). */
void cop_waits_settle(struct cop_waits *w, struct cop_tree *tree, struct cop_image_writer *writer, int64_t offset);
void cop_waits_clear(struct cop_waits *w);

/* Thaw.  In a thread that stands in the trampoline: makes the call that these registers of the image begin again, with `left` ns for
 * its limit, and turns them to where it was interrupted, or has returned.  scratch: 16 bytes in the process. */
void cop_waits_enter(struct cop_proc *p, struct cop_task *t, uint64_t left, uint64_t scratch,
                     struct user_regs_struct *regs);
/* Then, or for a call that begins again: it has `left` ns.  Marks it in the registers that the thread is to get. */
void cop_waits_add(struct cop_waits *w, pid_t tid, uint64_t left, struct user_regs_struct *regs);
