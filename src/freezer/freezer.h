/* Freeze and thaw of process trees: the library's interface.
 *
 * A tree is everything below the first process of a pid namespace.  An image is a folder with meta.img and page files
 * (image.h).  Both calls work on the calling thread, which becomes the tracer meanwhile; they block for milliseconds and
 * never leave a tree half stopped: on error a frozen tree runs on as it was (dump_accept.c has the one exception), a half thawed one
 * is gone.
 * Not for concurrent use from several threads of one process.  SIGCHLD needs no handling by the caller.
 * A caller who only owns the tree's user namespace freezes through a guest (guest.h): a process that shares his memory and descriptors
 * does the work, cop_freeze_request.stopped included, inside that namespace.
 *
 * Theory of operation: doc/freezer.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"

/* A descriptor whose other end lives outside the tree, or a mapped file that has no path inside it.  At freeze told by the
 * identity of its inode (fstat of the same pipe end or socket); at thaw every description of that name becomes a duplicate
 * of fd. */
struct cop_external {
        const char *name;  /* at most 63 bytes */
        uint64_t dev, ino; /* freeze */
        int fd;            /* thaw; borrowed */
};

/* Write tracking of a running tree between incremental freezes (userfaultfd in write-protect mode, asynchronous).  Belongs
 * to one tree; freeing it ends the tracking, after which the next freeze of the tree is a full one for anonymous memory. */
struct cop_tracker;
struct cop_tracker *cop_tracker_new(void);
void cop_tracker_free(struct cop_tracker *tracker);
/* A freeze of the tree that lets it run on follows at once: begins to look for what it has written, beside the caller.  Nothing is lost when
 * none follows. */
void cop_tracker_ahead(struct cop_tracker *tracker);
/* Has the tree provably not run since the image in this folder was made of it, with this tracker, and run on?  Then that image is what
 * a freeze would give, but for the time that has passed.  False: it has, or there is no proof (still.h).  The first time that it is true
 * takes 2 ms, as memory is looked at; later ones less than one. */
bool cop_tracker_still(struct cop_tracker *tracker, int image_dir_fd);

/* Time limits of a tree's interrupted calls (waits.h).  Belongs to one tree, as a tracker does; given to its freezes and its thaw.  As
 * long as the tree lives, poll cop_waits_fd() for reading, and call cop_waits_dispatch() when it is readable: without that, such calls
 * take their full time anew after each freeze or thaw.  Save and load: for who freezes and thaws with several processes. */
struct cop_waits;
struct cop_waits *cop_waits_new(void);
void cop_waits_free(struct cop_waits *waits);
int cop_waits_fd(const struct cop_waits *waits);
void cop_waits_dispatch(struct cop_waits *waits);
/* Is there an end to come? */
bool cop_waits_pending(const struct cop_waits *waits);
int cop_waits_save(const struct cop_waits *waits, const char *path, struct cop_error *err);
int cop_waits_load(struct cop_waits *waits, const char *path, struct cop_error *err);

/* Room for the pages of the image that a freeze is likely to make next (room.c): it then takes less time.  dir_fd: any folder of the
 * image's file system.  Grow appends so many bytes, at 0.5 us/KiB.  Errors: io_error, disk_full, or what the file system says that has
 * no nameless files (before ext4, xfs, btrfs, tmpfs: EOPNOTSUPP); a freeze does without. */
struct cop_freeze_room;
int cop_freeze_room_new(int dir_fd, struct cop_freeze_room **ret, struct cop_error *err);
int cop_freeze_room_grow(struct cop_freeze_room *room, size_t bytes, struct cop_error *err);
/* How many bytes of it are worth having after an image with so many pages of its own: a quarter more, from 1 to 8 MiB. */
uint64_t cop_freeze_room_wanted(uint64_t pages);
uint64_t cop_freeze_room_size(const struct cop_freeze_room *room);
struct cop_freeze_room *cop_freeze_room_free(struct cop_freeze_room *room); /* takes NULL; returns NULL */

enum cop_freeze_flags {
        COP_FREEZE_KILL = 1, /* end the tree once the image is committed; otherwise it runs on */
        COP_FREEZE_SYNC = 2, /* the image is on disk, not only in the page cache, when the call returns */
};

struct cop_freeze_request {
        pid_t root;        /* first process of a pid namespace, in the caller's */
        int image_dir_fd;  /* an empty folder; borrowed */
        int parent_dir_fd; /* folder of the image this tree was thawed from or last frozen to, or -EBADF */
        unsigned flags;
        const struct cop_external *externals;
        size_t external_count;
        struct cop_tracker *tracker;  /* for trees that run on; may be NULL */
        struct cop_waits *waits;      /* may be NULL */
        struct cop_freeze_room *room; /* taken over, used or not, and freed; may be NULL */
        usec_t timeout;               /* for the stop; 0: 10 s */
        /* Absolute paths, ended by NULL; borrowed; may be NULL.  Of those that are file systems in memory (tmpfs) the image has all that is in
         * them, since the caller of the thaw mounts them empty.  At most 16,384 files and folders, 64 levels deep (not_freezable). */
        const char *const *kept_folders;
        /* Called once while the whole tree stands still and its memory has been saved, to save what belongs to the same
         * instant (files); may be NULL.  Its failure is the freeze's. */
        int (*stopped)(void *userdata, struct cop_error *err);
        void *userdata;
};

struct cop_freeze_result {
        uint64_t pages_written, pages_kept; /* kept: taken over from the parent */
        uint64_t bytes;                     /* of the image's own files */
        uint32_t processes, threads, files;
        usec_t pause;       /* how long the tree stood still (all of it with KILL) */
        usec_t first_pause; /* an earlier one, when a tracker began its work or there was much new memory */
        usec_t total;
        usec_t stage[8]; /* stop, registers, maps, calls, descriptors, pages, commit, resume */
};

/* Errors: not_freezable (the message names pid, program and thing; the tree runs on), disk_full, image_damaged (parent),
 * internal.  On success with KILL all processes are gone and reaped when they were the caller's children. */
int cop_freeze(const struct cop_freeze_request *request, struct cop_freeze_result *ret, struct cop_error *err);

/* The same in two steps, for who has something to wait for before the tree is stopped.  Begin copies what can be copied while it runs;
 * finish does that again when much time has passed since, and then the rest, frees in any case, and gives the errors of cop_freeze.
 * request is borrowed from begin to end; externals, timeout, stopped and userdata may still be set before finish.  Cancel: nothing was
 * saved; takes NULL. */
struct cop_freeze;
int cop_freeze_begin(const struct cop_freeze_request *request, struct cop_freeze **ret, struct cop_error *err);
int cop_freeze_finish(struct cop_freeze *freeze, struct cop_freeze_result *ret, struct cop_error *err);
void cop_freeze_cancel(struct cop_freeze *freeze);

/* The memory watch of a thawed tree (watch.h): as long as the tree lives, the caller must poll cop_watch_fd() for reading
 * and call cop_watch_dispatch() when it is readable: until then the calling thread inside waits (microseconds otherwise).
 * Freed when the tree has ended; freed before, the watched calls fail with ENOSYS inside. */
struct cop_watch;
int cop_watch_fd(const struct cop_watch *watch);
int cop_watch_dispatch(struct cop_watch *watch, struct cop_error *err);
void cop_watch_free(struct cop_watch *watch);

/* Namespaces of a thaw.  -EBADF: make a new one (for user: stay in the caller's).  pid and time are always new. */
struct cop_thaw_namespaces {
        int user_fd, mount_fd, net_fd, ipc_fd, uts_fd, cgroup_fd;
};
#define COP_THAW_NAMESPACES_NEW                                \
        {                                                      \
                -EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF \
        }

enum cop_thaw_flags {
        COP_THAW_COPY = 1, /* copy all memory instead of mapping it from the image */
        COP_THAW_MAP = 2,  /* map it also in processes that have so little that it would be copied; for tests */
};

struct cop_image; /* opened and checked: image.h */

struct cop_thaw_request {
        int image_dir_fd;
        struct cop_image *image; /* stolen; opened before (cop_thaw_open), or NULL: cop_thaw opens it */
        struct cop_thaw_namespaces namespaces;
        int root_fd; /* the root folder of namespaces.mount_fd, for files to be opened early, or -EBADF; O_PATH will do */
        int cgroup_fd; /* cgroup v2 folder to be born in, or -EBADF */
        const struct cop_external *externals;
        size_t external_count;
        unsigned flags;
        usec_t timeout;          /* 0: 30 s */
        struct cop_waits *waits; /* new ones; may be NULL */
        /* Called in the first process after it entered its namespaces, before anything is rebuilt (to mount /proc …). */
        int (*setup)(void *userdata, struct cop_error *err);
        /* Called once in the caller's process, when all sockets are there and take connections, which nobody answers before the tree
         * runs, or ever, when the thaw fails.  May be NULL. */
        void (*bound)(void *userdata);
        /* Called in the caller's process, when nothing is left to be done but to let the tree go.  May be NULL. */
        int (*before_run)(void *userdata, struct cop_error *err);
        void *userdata;
};

struct cop_thaw_result {
        pid_t root;              /* in the caller's namespace; a child of the caller */
        int pidfd;               /* owned by the caller */
        struct cop_watch *watch; /* owned by the caller; NULL: nothing to watch */
        uint32_t processes, threads;
        usec_t total;
        usec_t stage[8]; /* open, fork, -, -, rebuild, seize, registers, detach */
        usec_t mark[8];  /* within rebuild, realtime: start, setup, objects, tree, descriptors, ready, table */
};

/* Errors: image_damaged, image_mismatch, start_failed (names what could not be rebuilt), no_memory.  On error nothing of
 * the tree is left. */
int cop_thaw(const struct cop_thaw_request *request, struct cop_thaw_result *ret, struct cop_error *err);

/* The first part of it, for who has to wait before the namespaces are there: opens the image and checks it.  *ret is owned by the caller
 * until a request has it; image_dir_fd is borrowed by it.  Errors: as of cop_thaw. */
int cop_thaw_open(int image_dir_fd, struct cop_image **ret, struct cop_error *err);
void cop_thaw_close(struct cop_image *image); /* NULL: nothing */
