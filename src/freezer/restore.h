/* The stages of a thaw inside the new processes; see thaw.c for the engine's side.
 *
 * Theory of operation.  The engine forks a helper, which enters or makes the namespaces and clones the tree's first
 * process.  That one (a copy of the engine, its "stub") opens every open file description of the whole tree at high
 * descriptor numbers, then forks its children by their old pids, and so on: descriptions are shared by inheritance.  Each
 * stub puts its own descriptors in place and prepares a table of system calls that replaces its memory, then jumps into
 * the trampoline (tramp.h).  When all threads of all processes have parked there, the engine seizes them, lets those with
 * seccomp filters of their own set them, gives all their registers and lets them go at once.
 *
 * Stubs talk to the engine through one shared page: barriers, the first error, a request.  All signals are blocked in them.
 */
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "freezer/births.h"
#include "freezer/freezer.h"
#include "freezer/image.h"
#include "freezer/tramp.h"

#define COP_BARRIERS 8

struct cop_restore_shared {
        struct cop_tramp_control control; /* first: its address is r13 of the trampoline */
        uint32_t barrier[COP_BARRIERS];
        struct {
                uint32_t asked; /* futex: 1 until the engine has done it, or could not */
                int32_t fd, size;
        } room;            /* in the send buffer of a socket of the first process: stubs may not go beyond wmem_max */
        uint32_t failed;   /* an error was written */
        uint32_t bound;    /* all sockets are there */
        uint32_t root_pid; /* as the engine sees it */
        uint32_t opened;   /* futex: the engine has opened what it can (restore_beside.c) */
        uint32_t watched;  /* processes that send the engine a watch */
        struct cop_error error;
        uint64_t mark[8]; /* monotonic usec of the engine's clock when the last process passed a stage */
        /* per process, by index: where its trampoline lies */
        struct cop_restore_place {
                uint64_t region, region_size;
                uint64_t code;   /* of the trampoline */
                uint32_t mapped; /* futex: those who share its descriptors and need none of ours any more */
        } place[];
        /* and per file, by index: cop_restore_shares() */
};

struct cop_stand_in; /* restore_as.c */

struct cop_restore {
        const struct cop_thaw_request *request; /* borrowed */
        const struct cop_image *image;          /* borrowed */
        const struct cop_birth *births;         /* borrowed; of each process */
        struct cop_restore_shared *shared;
        size_t shared_size;
        int shared_fd;
        int pass_fd[2]; /* by enum cop_pass_end; restore_pass.h */
        int *objects;   /* descriptor of each file of the image, or -EBADF */
        int *last_ends; /* owned: of each unix socket that end which closes when its queue is written; while sockets are made */
        int *sources;                  /* page files, moved high */
        int base_fd;                   /* first descriptor number that no process of the tree uses */
        uint32_t live;                 /* processes that are not zombies */
        int proc_fd;                   /* /proc/self of this stub, which may be out of sight after a chroot */
        uint32_t self;                 /* index of the process this stub becomes */
        struct cop_stand_in *stand_in; /* owned; makes calls in another's name, while objects are made */
        bool *code;                    /* owned, in a stub: which files of the image its process has code of */
        bool new_uts;
        cpu_set_t cpus;      /* that the tree may have; the helper may have fewer */
        uint32_t processors; /* of the engine, now */
        bool unwatched; /* all undumpable processes; in a stub its own: memory is copied, so that nothing needs watching */
};

enum cop_pass_end { COP_PASS_ENGINE, COP_PASS_TREE };

#define RESTORE_PROC(r, i) IMG_RECORD((r)->image, IMG_PROCS, img_proc, i)
#define RESTORE_THREAD(r, i) IMG_RECORD((r)->image, IMG_THREADS, img_thread, i)
#define RESTORE_FILE(r, i) IMG_RECORD((r)->image, IMG_FILES, img_file, i)

/* restore_tree.c.  Runs in the helper; clones the first process, which never returns. */
int cop_restore_start(struct cop_restore *r, struct cop_error *err);
/* One of the numbers that no process, thread, group or session of the tree has; each process may take the one of its own index,
 * and the first process that of the count of processes, too.  -ENOMEM. */
pid_t cop_restore_spare_pid(const struct cop_restore *r, uint32_t number);
/* As fork(), for a process that ends and is reaped before its parent does anything else: with a number that is not in the way of
 * what other stubs make meanwhile. */
pid_t cop_restore_fork_helper(const struct cop_restore *r);
/* restore_fd.c: all descriptions, in the first process; the controlling terminal, in a session leader before it forks (it is
 * inherited); then, in each, its own descriptors. */
int cop_restore_terminal(struct cop_restore *r, const struct img_proc *p, struct cop_error *err);
int cop_restore_objects(struct cop_restore *r, struct cop_error *err);
int cop_restore_descriptors(struct cop_restore *r, struct cop_error *err);
void cop_restore_foreground(struct cop_restore *r, const struct img_proc *p);
/* Flags of a description: those that F_SETFL may be given, but for O_ASYNC, which comes last, as it goes by the number of a descriptor;
 * what open(2) may be given of F_GETFL's answer. */
#define COP_FLAGS_SET (O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME)
#define COP_FLAGS_OPEN (O_ACCMODE | COP_FLAGS_SET | O_PATH | O_DIRECTORY | O_SYNC | O_DSYNC | O_NOFOLLOW)
/* Another description of the same file (not of a folder); of an earlier file with the same link the descriptor, or -1; the contents
 * of a file; owner, mode and times, in that order, of what has that name (a path with AT_FDCWD), or with "" of fd itself.  -errno. */
int cop_restore_reopen(int fd, int flags);
int cop_restore_sibling(const struct cop_restore *r, uint32_t index);
int cop_restore_file_pages(struct cop_restore *r, const struct img_file *f, int fd);
int cop_restore_attributes(int fd, const char *name, const struct img_file *f, mode_t mode);
/* restore_kept.c: what was in folders in memory. */
int cop_restore_kept(struct cop_restore *r, struct cop_error *err);
/* restore_removed.c: a file, FIFO, folder or symbolic link made again without a name, with all that belongs to it, open for anything;
 * a description of one that is no FIFO.  A descriptor. */
int cop_restore_without_name(struct cop_restore *r, const struct img_file *f);
int cop_restore_removed(struct cop_restore *r, uint32_t index, struct cop_error *err);
/* Moves a descriptor to a number >= base_fd (closing the old one); -errno. */
int cop_restore_move_high(const struct cop_restore *r, int fd);
/* restore_process_file.c: what stands for a process of the tree, when it is there, or a file of /proc, opened with
 * `flags`; a descriptor, or -1 with errno.  And
 * pidfds of processes that have ended, those of one process together. */
int cop_restore_process_file(const struct cop_restore *r, const struct img_file *f, int flags);
int cop_restore_pidfds_of_ended(struct cop_restore *r, struct cop_error *err);
/* Ends the process with the status that wait() is to tell (but for the core dump), all signals being blocked. */
__attribute__((noreturn)) void cop_restore_end(int status);
/* restore_beside.c: files that are only mapped.  In the engine: which they are, before there is a helper, and their opening.  In the first
 * process: whether a file is among them; whether it is to be opened here, since nobody has begun to; and what the engine has opened, after
 * which those that could not be opened have no descriptor yet. */
void cop_restore_beside_choose(struct cop_restore *r);
void cop_restore_beside_open(struct cop_restore *r);
bool cop_restore_is_beside(const struct cop_restore *r, uint32_t index);
bool cop_restore_beside_take(struct cop_restore *r, uint32_t index);
void cop_restore_beside_done(struct cop_restore *r);
/* restore_inotify.c: the watches of a descriptor that is open. */
int cop_restore_inotify(struct cop_restore *r, uint32_t index, struct cop_error *err);
/* restore_as.c: ends the child that made calls in the name of processes to come, so that their pids are free. */
void cop_restore_as_done(struct cop_restore *r);
/* restore_sock.c */
int cop_restore_sockets(struct cop_restore *r, struct cop_error *err);
/* restore_sysv.c: all objects, in the helper; and, when everything is attached, the removal of those that were removed. */
int cop_restore_sysv(struct cop_restore *r, struct cop_error *err);
bool cop_restore_sysv_doomed(const struct cop_image *im);
void cop_restore_sysv_remove(const struct cop_image *im);
/* restore_mem.c: builds the table and jumps; returns only on error. */
int cop_restore_memory(struct cop_restore *r, struct cop_error *err);
/* Do threads of the process have other seccomp filters than the first process, each its own, or the strict mode?  Those may forbid what
 * the trampoline does, so all of its threads park before they set them, and the engine lets one after the other go on from there when it
 * can keep filters from being asked. */
bool cop_restore_filters_late(const struct cop_image *image, const struct img_proc *p);

enum { COP_MARK_START, COP_MARK_SETUP, COP_MARK_OBJECTS, COP_MARK_TREE, COP_MARK_FDS, COP_MARK_READY, COP_MARK_TABLE };
static inline void cop_restore_mark(struct cop_restore *r, int which)
{
        struct timespec ts;

        clock_gettime(CLOCK_REALTIME, &ts); /* the same in every time namespace */
        r->shared->mark[which] = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Wakes the engine, or keeps it from falling asleep, so that it looks at the shared page. */
static inline void cop_restore_tell(struct cop_restore_shared *s)
{
        __atomic_add_fetch(&s->control.parked, 1U << COP_NEWS_SHIFT, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->control.parked, FUTEX_WAKE, 1, NULL);
}

/* thaw.c: waits until a word of the shared page is another, 20 ms at most; `look`: by looking at it again and again, for COP_LOOK at most,
 * where that is sooner than a sleeping processor would wake up. */
#define COP_LOOK 200 /* us */
void cop_await_change(const uint32_t *word, uint32_t seen, bool look);

/* Who opens each file of the image: restore_beside.c. */
static inline unsigned char *cop_restore_shares(const struct cop_restore *r)
{
        return (unsigned char *)&r->shared->place[r->image->count[IMG_PROCS]];
}

/* Handler of a signal: SIG_DFL, SIG_IGN or an address. */
static inline uint64_t cop_restore_action(const struct cop_image *image, const struct img_proc *p, int sig)
{
        const struct {
                uint64_t handler, flags, restorer, mask;
        } *actions = cop_image_at(image, &p->sigactions);

        return actions[sig - 1].handler;
}

static inline bool cop_restore_holds_signal(const struct cop_image *image, uint32_t first, uint32_t count, int sig)
{
        for (uint32_t i = 0; i < count; i++)
                if (*(const int32_t *)(const void *)IMG_RECORD(image, IMG_SIGNALS, img_signal, first + i)->info == sig)
                        return true;
        return false;
}

/* cop_proc.no_traps */
static inline bool cop_restore_no_traps(const struct cop_image *image, const struct img_proc *p)
{
        bool no = cop_restore_action(image, p, SIGTRAP) == (uint64_t)(uintptr_t)SIG_IGN ||
                  cop_restore_holds_signal(image, p->first_signal, p->signals, SIGTRAP);

        for (uint32_t i = 0; i < p->threads && !no; i++) {
                const struct img_thread *t = IMG_RECORD(image, IMG_THREADS, img_thread, p->first_thread + i);
                no = cop_restore_holds_signal(image, t->first_signal, t->signals, SIGTRAP);
        }
        for (uint32_t i = 0; i < p->timers && !no; i++) /* its end may have come */
                no = IMG_RECORD(image, IMG_TIMERS, img_timer, p->first_timer + i)->signal == SIGTRAP;
        return no;
}

/* F_SEAL_FUTURE_WRITE forbids the mappings for writing that were made before. */
static inline bool cop_restore_seals_late(const struct img_file *memfd)
{
        return memfd->arg[1] & 0x10 /* F_SEAL_FUTURE_WRITE */;
}

/* Is a thread told by a signal that there is something to do, which is not there before its process makes it? */
static inline bool cop_restore_owner_late(const struct cop_image *image, const struct img_file *f)
{
        bool thread = f->owner[0] == F_OWNER_TID && f->owner[1] != 0;

        for (uint32_t i = 0; thread && i < image->count[IMG_PROCS]; i++)
                thread = IMG_RECORD(image, IMG_PROCS, img_proc, i)->pid != f->owner[1];
        return thread;
}

static inline const char *cop_restore_string(const struct cop_restore *r, const struct img_ref *ref)
{
        return cop_image_at(r->image, ref);
}
