/* /proc/PID/mountinfo (man 5 proc_pid_mountinfo), parsed.  Foreign bytes: a mount point may have any name.  Fuzz target:
 * tests/fuzz/fuzz-sandbox-procfs.c. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* One line; all strings point into the parsed text, octal escapes resolved. */
struct cop_mountinfo {
        int mount_id, parent_id;
        dev_t device;
        const char *root;
        const char *mount_point;
        const char *options;
        const char *fs_type;
        const char *source;
        const char *super_options;
};

/* Parses the line at *cursor (NUL-terminated text, changed in place) and moves *cursor behind it.  1 with *ret filled, 0
 * at the end of the text, -EBADMSG for a malformed line (the cursor has moved: go on with the next). */
int cop_mountinfo_next(char **cursor, struct cop_mountinfo *ret);

struct cop_mounts {
        char *text;                 /* owned */
        struct cop_mountinfo *list; /* owned */
        size_t count;
};

/* All mounts of a file of at most max bytes, in its order, but for malformed lines.  After an error *ret is as it was. */
int cop_mounts_read(int dir_fd, const char *path, size_t max, struct cop_mounts *ret, struct cop_error *err);
void cop_mounts_done(struct cop_mounts *m);
