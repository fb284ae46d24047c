/* Copies of single files for capture.c: everything but the walk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "keeper/capture.h"

#define COP_CAPTURE_TICK (20 * USEC_PER_MSEC)

/* By what an unchanged file is known.  Host byte order, in the attribute trusted.coppice.source of a copy. */
struct cop_capture_note {
        uint64_t ino, size;
        int64_t ctime_sec, ctime_nsec;
};

struct cop_capture_note cop_capture_note_of(const struct stat *st);
/* False when it changed within the last clock ticks: it may change again without a new time. */
bool cop_capture_settled(const struct stat *st);
/* Whether the copy `name` in dir_fd (-EBADF = none) was made from exactly this state of the source. */
bool cop_capture_is_current(int dir_fd, const char *name, const struct cop_capture_note *want);

/* All of these return 0 or -errno.  The name must be free in the layer.  -ESTALE: the source is something else by now, nothing was
 * made; the next pass sees what it is. */
int cop_capture_copy_file(struct cop_capture *c, int upper_fd, int layer_fd, const char *name, struct stat *ret_source,
                          bool *ret_settled);
int cop_capture_copy_symlink(int upper_fd, int layer_fd, const char *name, const struct stat *st);
int cop_capture_copy_special(int upper_fd, int layer_fd, const char *name, const struct stat *st);
/* Owner, attributes, mode, times of a folder; attributes that the source has no more go. */
int cop_capture_copy_folder_attributes(int upper_fd, int layer_fd, const struct stat *st);
