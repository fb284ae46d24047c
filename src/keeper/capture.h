/* Capturing a sandbox's files: makes a folder (a node's layer) equal to the upper directory.
 *
 * Called any number of times for the same layer; each call transfers what has changed since the one before, so that a long
 * first pass runs beside the sandbox and a short second one while it stands still.  A regular file is known as unchanged by its
 * inode, size and change time, which no program can set; they are noted in an extended attribute of the copy.  An unchanged file
 * of `parent` (the layer of an earlier capture of the same upper directory) becomes a hard link to that copy: both are
 * immutable from then on.
 *
 * The same: names, types, contents with their holes, modes, owners, times, extended attributes (whiteouts, opaque folders and file
 * capabilities among them), and which names are hard links of one file.
 *
 * The upper directory is written by the sandbox and hostile: names are followed one folder at a time with O_NOFOLLOW, special
 * files are remade and never opened, depth and attributes are bounded.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct cop_capture_folder;
struct cop_capture_link;

struct cop_capture {
        int upper_fd;  /* borrowed */
        int layer_fd;  /* borrowed */
        int parent_fd; /* borrowed; -EBADF = none */
        bool plain;    /* a copy that is written to later: nothing is noted, nothing is linked */
        bool no_sockets;
        bool patient; /* the sandbox runs meanwhile: a large file that has just been written is given the time to be known again */
        atomic_bool cancel;    /* another thread wants the pass to end: it fails with ECANCELED */
        uint64_t files, bytes; /* copied, linked ones not counted: of all passes */

        struct cop_capture_folder *seen; /* owned: what the last pass found */
        struct cop_capture_link *links;  /* owned: files with several names, of the pass under way */
        size_t seen_count;
        char where[64]; /* the name at which a pass failed */
};

/* Errors: disk_full, io_error; the layer is then half made and to be deleted. */
int cop_capture_pass(struct cop_capture *c, struct cop_error *err);
/* Copies the tree below from_fd into the empty folder to_fd: one plain pass, without sockets. */
int cop_capture_copy(int from_fd, int to_fd, struct cop_error *err);
/* Frees what the passes remember; not the descriptors. */
void cop_capture_done(struct cop_capture *c);
