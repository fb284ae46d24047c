/* What differs between two stacks of overlay layers, found without mounting them.
 *
 * A stack is a list of folders, topmost first, as overlayfs with userxattr reads them: a whiteout (character device 0:0) hides a name
 * below it, a folder with the attribute user.overlay.opaque does not show what lies below it.  Layers with redirects or metacopies are
 * refused (ours have neither).  A folder that only layers of both stacks contribute to is not looked into, so the time goes with
 * what the two do not share.
 *
 * Contents are compared by SHA-256 when the sizes are the same and the two are not one inode; a time alone is no difference.  Beyond
 * COP_COMPARE_READ_MAX bytes read nothing more is: then a file of the same size counts as changed when its time is another one.
 *
 * Left out, whatever lies in them: /dev /proc /run /sys, /etc/hostname and /etc/hosts (which
 * Coppice writes for each sandbox), and folders named __pycache__, .cache, .ipython or .ipynb_checkpoints.
 *
 * Everything in a layer is hostile: only regular files are opened, nothing is followed, depth and number are bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

#define COP_COMPARE_READ_MAX (2ULL << 30)
#define COP_COMPARE_DEPTH_MAX 256
#define COP_COMPARE_NAMES_MAX 200000 /* of one folder */

struct cop_compare_file {
        bool exists;
        struct stat st;
        char sha256[65];   /* "" = was not read */
        char target[4096]; /* of a symbolic link */
        int fd; /* of a regular file that was read, at its beginning; else -EBADF.  Borrowed during the callback */
};

struct cop_compare_change {
        const char *path; /* absolute inside; bytes, not necessarily UTF-8 */
        struct cop_compare_file a, b;
        bool type, content, mode, owner; /* what differs; of an added or removed one none is set */
};

struct cop_compare {
        int (*fn)(const struct cop_compare_change *c, void *userdata, struct cop_error *err);
        void *userdata;
        size_t full_max;   /* so many changes get sums and targets; the rest are told with their attributes alone */
        uint64_t told;     /* out */
        uint64_t bytes;    /* out: read */
        uint64_t unread;   /* out: files whose contents were not compared */
        uint64_t unopened; /* out: folders and files that could not be read */
};

/* A stack: absolute paths (borrowed until it is closed), the same text = the same layer.  Opening needs rights to the folders above the
 * layers, comparing only to what is in them. */
struct cop_compare_stack;
int cop_compare_open(const char *const *paths, size_t count, struct cop_compare_stack **ret, struct cop_error *err);
struct cop_compare_stack *cop_compare_close(struct cop_compare_stack *s); /* takes NULL */

/* Calls fn for each difference, in order of paths.  unsupported, no_memory, io_error, or what fn returned. */
int cop_compare_run(struct cop_compare *c, struct cop_compare_stack *a, struct cop_compare_stack *b,
                    struct cop_error *err);
