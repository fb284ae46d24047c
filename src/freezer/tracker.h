/* Write tracking between freezes of a tree that runs on, and copying pages before the stop.
 *
 * Theory of operation.  Each process gets a userfaultfd in asynchronous write-protect mode, made by a call inside it and
 * taken out to the engine: the kernel itself resolves the faults and only remembers that a page was written, which
 * PAGEMAP_SCAN tells (and protects again in one step).  Pages of areas that are not registered, that are new, or that
 * belong to a child forked since count as written: so whatever a program does, the worst case is a page copied twice.
 *
 * With that, most pages are copied while the tree still runs (a page is protected before it is read, so a write during or
 * after the copy is seen), and the stop only has to copy those written meanwhile: the pause depends on what the tree does
 * within some milliseconds, not on its size or on how much changed since the last image.
 *
 * A page that was written may still hold what it held: short runs are compared with the parent image, and pages that are as they
 * are there are not copied (half of those that a small cell of Python writes to).
 *
 * Areas are registered while the tree stands still only.  One that the program changes at that moment would be registered in part: two
 * areas where there was one, over which a call to mremap fails.
 *
 * Tracking is relative to one image: the last one that was committed.  When a freeze fails after pages were protected, or
 * the caller names another parent, what is known is void and everything counts as written once.
 */
#pragma once

#include "freezer/dump.h"
#include "freezer/runs.h"
#include "freezer/still.h"

/* Pages copied before the stop, per process. */
struct cop_precopy {
        pid_t pid;
        struct img_extent *list; /* owned; ascending, later rounds replace earlier ones */
        size_t count;
};

struct cop_tracked_area {
        uint64_t start, end;
        bool anonymous;
};

struct cop_tracked {
        pid_t pid, nspid;               /* here; in its own namespace */
        int uffd, pagemap_fd, mem_fd;   /* of a living thread: the first one may end, and be without memory then */
        struct cop_tracked_area *areas; /* owned: registered areas as they were in the last stop */
        size_t area_count;
        uint64_t size; /* of the address space then, in pages */
        struct cop_precopy pre;
        struct cop_runs looked; /* owned: what the first look before this stop found written since the last image */
};

/* Pages of one page file that another has, too (dump_chain.c). */
struct cop_tracker_move {
        char from_id[IMG_ID_MAX], to_id[IMG_ID_MAX];
        uint64_t from, to; /* offsets */
        uint32_t pages;
};

struct cop_tracker {
        char image_id[IMG_ID_MAX]; /* what "not written" refers to; empty: nothing */
        struct cop_tracked *list;  /* owned */
        size_t count;
        struct cop_still still;            /* since that image */
        struct cop_precopying *precopying; /* owned; a look or a copy that is under way (precopy.c), or NULL */
        struct cop_tracker_move *moves;    /* owned: of page files that the tree maps */
        size_t move_count, moves_allocated;
};

/* Is there nothing to go by, or much memory that is not tracked yet?  Then cop_tracker_begin(), in a stop. */
bool cop_tracker_outdated(const struct cop_tracker *t);
/* In a stop: every process gets its userfaultfd and has its areas registered. */
int cop_tracker_begin(struct cop_tracker *t, struct cop_dump *d, struct cop_error *err);
/* precopy.c, before the stop: copies what was written so far (all, the first time).  d->tree is not stopped.  The last of it may still be
 * copied when it returns. */
int cop_tracker_precopy(struct cop_dump *d, struct cop_error *err);
/* Waits for that; only then are the lists of precopied pages complete.  Called again it does nothing. */
int cop_tracker_precopied(struct cop_dump *d, struct cop_error *err);
/* What was looked for ahead is not used: it was protected, so what the tracker says of writes is void afterwards. */
void cop_tracker_give_up(struct cop_tracker *t);
/* In the stop: gives every process that has none its userfaultfd. */
int cop_tracker_adopt(struct cop_tracker *t, struct cop_dump *d, struct cop_error *err);
/* In the stop: registers all areas of a process and notes in each whether it is.  Not only new ones: an area that lies where a
 * registered one was a moment ago may be another, of which the kernel would report nothing. */
void cop_tracker_cover(struct cop_tracker *t, pid_t pid, struct cop_vmas *vs);
struct cop_tracked *cop_tracker_find(const struct cop_tracker *t, pid_t pid);
/* Is the memory still that of the program that was tracked?  If not, nothing is known of the process any more. */
bool cop_tracked_alive(struct cop_tracked *t);
/* Protects what was written in all that is registered, or everything, and adds it. */
int cop_tracker_protect(const struct cop_tracked *t, bool everything, struct cop_runs *runs);
/* Adds what was written since the last image, in all that is registered; it stays unprotected.  -ENODATA: nothing is known. */
int cop_tracker_written(const struct cop_tracked *t, struct cop_runs *runs);
/* The image was committed (id), or not (NULL). */
void cop_tracker_settle(struct cop_tracker *t, const char *id);
