/* The ptrace side: a tree of stopped processes, their registers, and batches of system calls run inside them.
 *
 * Theory of operation.  cop_tree_stop() seizes every thread of every descendant of a pid namespace's first process and
 * rescans until a whole pass finds nothing new: as all that could fork is stopped by then, the set is complete.  From
 * there on each thread is in a ptrace stop with its registers saved in struct cop_task; everything that runs code in a
 * target goes through cop_batch_*, which leaves no trace once cop_tree_resume() has written the registers and masks back.
 *
 * A batch needs memory in the target: one mapping is made by single-stepping a system call instruction of the vdso, and
 * is unmapped the same way.  All signals but SIGTRAP are blocked meanwhile (SIGTRAP: a blocked int3 would make the kernel
 * reset the handler).  Where SIGTRAP is ignored, any trap would reset that, and one that is pending would be taken for a trap of ours: it
 * stays blocked there, system calls are stopped at their entry and exit instead, and a batch ends with a call that says so.
 *
 * Kernel: >= 6.11 (NS_GET_PID_IN_PIDNS).  Calls: ptrace, wait4, pidfd_open, process_vm_*, /proc/PID/mem, ioctl(nsfs).
 */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>

#include "base/err.h"
#include "freezer/image.h"
#include "freezer/tramp.h"

#define COP_PIDFD_THREAD O_EXCL       /* PIDFD_THREAD, kernel >= 6.9 */
#define COP_SUSPEND_SECCOMP (1 << 21) /* PTRACE_O_SUSPEND_SECCOMP */

/* A system call that a thread is in, as /proc/PID/syscall and its registers tell it (the number: their lower half). */
struct cop_call {
        uint64_t nr, arg[6], sp, pc;
};

/* A call's time limit that counts from its begin. */
struct cop_limit {
        uint64_t nr;    /* the call's own also where restart_syscall goes on with it */
        int arg, rest;  /* which argument has it; which the address that what is left is written to, or -1 */
        bool ms;        /* a number of milliseconds, otherwise the address of a timespec */
        bool block;     /* the kernel restarts it with what is left (ERESTART_RESTARTBLOCK), otherwise it gives EINTR */
        int64_t result; /* of the call when the time is over */
};

/* Where a thread sleeps that has made restart_syscall. */
enum cop_asleep_in { COP_ASLEEP_UNKNOWN, COP_ASLEEP_SLEEP, COP_ASLEEP_FUTEX, COP_ASLEEP_POLL };

/* See waits.h. */
struct cop_wait {
        bool asleep; /* before the stop, in `call`, with what follows */
        bool limited;
        bool vague; /* the end is a guess until cop_waits_settle() */
        struct cop_call call;
        enum cop_asleep_in in;    /* also when not asleep, as long as it is in `call` */
        uint64_t restarted;       /* the call that it is to go on with by restart_syscall, 0: none */
        uint64_t since, switches; /* clock of its CPU when it fell asleep; how often it had slept */
        int cpu;                  /* that it belongs to */
        bool slept_here;          /* and fell asleep on */
        struct cop_limit limit;
        uint64_t length, end; /* ns; of the engine's monotonic clock */
        uint32_t record;      /* in IMG_THREADS, or IMG_NONE */
};

struct cop_task {
        pid_t tid;   /* in the engine's pid namespace */
        pid_t nstid; /* in the tree's */
        bool stopped;
        bool group_stop;
        bool took_stop; /* code that was run in it took a pending SIGSTOP, which nothing can block: it is to be sent again */
        bool seized;
        bool unconfined; /* no seccomp mode has a say while it is traced */
        int stop_signal;
        struct user_regs_struct regs; /* as they were at the stop */
        uint64_t sigmask;
        uint64_t rseq; /* address of its area, 0: none */
        uint32_t rseq_size, rseq_signature;
        char *xstate; /* owned */
        size_t xstate_size;
        size_t slot; /* offset of its part of the remote region */
        struct cop_wait wait;
};

struct cop_proc {
        pid_t pid, nspid;
        uint32_t parent; /* index in the tree, IMG_NONE for the root */
        bool zombie;
        bool leader_ended; /* the first thread has, others go on */
        pid_t living; /* whose memory and descriptors are there: pid, else another thread.  As are dir_fd and pidfd. */
        int exit_signal, exit_code; /* of a leader that has ended */
        int dir_fd, pidfd, mem_fd;
        struct cop_task *tasks; /* owned; [0] is the leader if it has not ended */
        size_t task_count;
        uint64_t syscall_insn; /* a system call instruction in the target: the vdso's, or another */
        bool no_traps;         /* SIGTRAP is ignored or pending: said by the caller before code is run */
        uint64_t locked_kb;    /* memory that was locked before the batch region was mapped, */
        bool remote_locked;    /* and whether that is: both for the caller */
        uint64_t remote;       /* the batch region, 0 when none */
        size_t remote_size;
        char comm[64];
};

struct cop_tree {
        struct cop_proc *procs; /* owned; parents before children */
        size_t count;
        int pidns_fd;
};

int cop_tree_stop(pid_t root, struct cop_tree *ret, struct cop_error *err);
/* Writes registers and masks back where they were changed, unmaps what batches mapped, detaches: the tree runs on.
 * Idempotent; also the error path. */
void cop_tree_resume(struct cop_tree *tree);
/* Ends the tree: kills its first process, waits until all are gone. */
void cop_tree_kill(struct cop_tree *tree);
void cop_tree_done(struct cop_tree *tree);
#define _cleanup_tree_ __attribute__((cleanup(cop_tree_done)))

/* Registers, mask and vector state of all tasks; a restartable sequence is left. */
int cop_tree_read_registers(struct cop_tree *tree, struct cop_error *err);

/* The slot of a task in the remote region: ops first, then data. */
#define COP_SLOT_OPS 104
#define COP_SLOT_DATA (COP_SLOT_OPS * sizeof(struct cop_op))
#define COP_SLOT_SIZE 16384UL
#define COP_SLOT_SCRATCH \
        (COP_SLOT_SIZE - COP_SLOT_DATA - 256) /* offset, within the data, of 256 bytes that no batch of calls uses */

/* Maps the region in the process (all its tasks stopped) and places the code; syscall_insn is set. */
int cop_batch_begin(struct cop_proc *p, struct cop_error *err);
/* Address of a system call instruction within the n bytes at `start` of the process, 0: there is none. */
uint64_t cop_find_syscall(const struct cop_proc *p, uint64_t start, uint64_t n);
/* Address in the target of `offset` in the data part of the task's slot. */
static inline uint64_t cop_batch_data(const struct cop_proc *p, const struct cop_task *t, size_t offset)
{
        return p->remote + t->slot + COP_SLOT_DATA + offset;
}
/* Starts n ops (there must be room for two more) in the task; data (may be NULL) is placed first.  Then wait, which reads the ops back
 * with their results and the data. */
int cop_batch_start(struct cop_proc *p, struct cop_task *t, struct cop_op *ops, size_t n, const void *data,
                    size_t data_size, struct cop_error *err);
int cop_batch_wait(struct cop_proc *p, struct cop_task *t, struct cop_op *ops, size_t n, void *data, size_t data_size,
                   struct cop_error *err);
/* Lets a thread that stands in the vdso (start to end) finish there, and reads its registers again: the vdso's code for a clock keeps
 * half of a reading in registers, which the offsets of another time namespace would be added to. */
int cop_leave_vdso(const struct cop_proc *p, struct cop_task *t, uint64_t start, uint64_t end, struct cop_error *err);
/* One system call by single step; for mapping and unmapping.  In two steps where several processes can make theirs at once. */
int cop_remote_begin(struct cop_proc *p, struct cop_task *t, long nr, const uint64_t arg[6], struct cop_error *err);
int cop_remote_end(struct cop_proc *p, struct cop_task *t, int64_t *ret_result, struct cop_error *err);
int cop_remote_syscall(struct cop_proc *p, struct cop_task *t, long nr, const uint64_t arg[6], int64_t *ret_result,
                       struct cop_error *err);

static inline struct cop_op cop_op(long nr, uint32_t flags, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                                   uint64_t f)
{
        return (struct cop_op){.nr = (uint32_t)nr, .flags = flags, .arg = {a, b, c, d, e, f}};
}
/* In place of COP_OP_STOP where nothing may trap. */
#define COP_MARK 0x636f70706d61726bULL
static inline struct cop_op cop_op_mark(void)
{
        return cop_op(SYS_getpid, 0, COP_MARK, 0, 0, 0, 0, 0);
}

int cop_mem_read(const struct cop_proc *p, uint64_t address, void *buf, size_t n);
int cop_mem_write(const struct cop_proc *p, uint64_t address, const void *buf, size_t n);
/* pid or tid of the engine's namespace -> inside (0: not there), and back (0: none). */
pid_t cop_pid_inside(int pidns_fd, pid_t pid);
pid_t cop_pid_outside(int pidns_fd, pid_t nspid);
/* Lets the task go on until its next SIGTRAP that is no event. */
int cop_run_to_trap(struct cop_task *t, int request, struct cop_error *err);
/* The same where nothing may trap: until the call that cop_op_mark() makes is over, all signals being blocked. */
int cop_run_to_mark(struct cop_task *t, struct cop_error *err);
/* Does a SIGTRAP wait for this thread, or for all of its process?  It is traced and stopped. */
bool cop_trap_pending(pid_t tid);
/* Sends a SIGSTOP again that was taken from the task; before it is let go. */
void cop_give_stop_back(const struct cop_task *t);
/* Lets a thread go.  Of one that was killed meanwhile nobody learns, not even its parent, before its tracer has seen the end: that is
 * waited for, but for that of a child of the caller's. */
void cop_let_go(pid_t tid);
/* Waits for a stop or the end of one tid; returns the wait status. */
int cop_wait_task(pid_t tid, int *ret_status);
/* Offset of a system call instruction in the vdso, which is the same in every process of this kernel; 0: none. */
uint64_t cop_vdso_syscall(void);
/* rseq.c: aborts the restartable sequence that the task is in, as the kernel would, and fills its rseq fields. */
void cop_leave_sequence(const struct cop_proc *p, struct cop_task *t);
/* interrupted.c: whether the stop interrupted a system call that can start again; makes it do so, by its registers (true when they
 * were changed); and back: as if the call had been made, with this result, which may be one that the kernel restarts it for. */
bool cop_was_interrupted(const struct user_regs_struct *regs);
bool cop_rewind_interrupted(struct user_regs_struct *regs);
void cop_resume_interrupted(struct user_regs_struct *regs, int64_t result);
/* The same for a call that is to be known again, by this number (of 31 bits) in the upper half of orig_rax; restart: the kernel has what is
 * left of its time.  Also for one that was turned back already. */
void cop_mark_interrupted(struct user_regs_struct *regs, bool restart, uint32_t mark);
/* restarted.c: the call that a thread with these registers is to go on with by restart_syscall, at whose end or before which it stands;
 * 0: it is not. */
uint64_t cop_restarted_call(const struct cop_proc *p, const struct user_regs_struct *regs, enum cop_asleep_in seen);
/* The call that registers at a stop tell; the time limit, if it has one that counts from its begin, of a call with its own number. */
struct cop_call cop_call_of(const struct user_regs_struct *regs);
bool cop_call_limit(const struct cop_call *call, struct cop_limit *ret);
/* waits.c: the call in which a thread sleeps, task being its folder of /proc; false: it does not. */
bool cop_call_slept_in(int at_fd, const char *task, struct cop_call *ret);
/* Of the same arguments, from the same place, whatever the number: the kernel restarts some under another. */
bool cop_call_same_place(const struct cop_call *a, const struct cop_call *b);
