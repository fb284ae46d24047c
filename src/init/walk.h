/* Going through folder trees that others may change meanwhile.  Links are never followed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

#define COP_WALK_LEVELS_MAX 256 /* one descriptor and one readdir buffer a level */

struct cop_walk_entry {
        int dir_fd;       /* borrowed: the folder the entry is in */
        const char *name; /* in that folder */
        const char *path; /* relative to the start */
        struct stat st;   /* as by lstat */
        bool leaving;     /* the second call for a folder, after all below it; only with `leave` */
};

/* Return 0 to go on, 1 to not go into this folder, a negative errno to end the walk. */
typedef int (*cop_walk_fn)(const struct cop_walk_entry *entry, void *userdata, struct cop_error *err);

struct cop_walk {
        cop_walk_fn fn;
        void *userdata;
        bool leave;
        bool skip_unreadable; /* folders that may not be opened are shown but not entered, instead of an error */
        uint64_t depth;       /* 1 = only the folder's own entries; at most COP_WALK_LEVELS_MAX */
        bool truncated; /* out: folders deeper than COP_WALK_LEVELS_MAX were not entered although depth asked for it */
};

/* Calls fn for everything below the folder dir_fd (borrowed), a folder before what it holds.  Entries that vanish
 * meanwhile are left out.  A folder that cannot be opened ends the walk with an error; `shown` names the start in
 * messages. */
int cop_walk_tree(struct cop_walk *w, int dir_fd, const char *shown, struct cop_error *err);

/* Removes a folder and all below it: any depth with four descriptors, no link followed, no mount point crossed.  What
 * others add meanwhile is removed too, or the last rmdir fails. */
int cop_tree_remove(int at_fd, const char *path, struct cop_error *err);
