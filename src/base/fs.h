/* Files of our own: reading with limits, atomic writing, paths beneath a root, removing trees. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

/* Opens path (relative, no leading /) beneath root_fd with openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
 * RESOLVE_NO_SYMLINKS when nofollow): a link or .. cannot lead outside.  Kernel >= 5.6.  Returns the descriptor. */
int cop_open_beneath(int root_fd, const char *path, int flags, mode_t mode, int nofollow, struct cop_error *err);

/* Reads a whole file of at most `max` bytes (-EFBIG beyond) into a malloc'd NUL-terminated string. at_fd may be
 * AT_FDCWD. */
int cop_read_file(int at_fd, const char *path, size_t max, char **ret_text, size_t *ret_len, struct cop_error *err);
/* One line/number files of proc, sysfs and cgroupfs: as cop_read_file with trailing white space removed, max 4 KiB. */
int cop_read_word(int at_fd, const char *path, char **ret_text, struct cop_error *err);
/* open(O_WRONLY) + one write, for kernel files (cgroup, proc).  No O_CREAT. */
int cop_write_kernel_file(int at_fd, const char *path, const char *text, struct cop_error *err);

/* Writes to a temporary name beside path, fsyncs, renames, fsyncs the folder: after a crash the old or the new content
 * is there.  mode as for open(2), exact. */
int cop_write_file_atomic(int at_fd, const char *path, const void *data, size_t n, mode_t mode, struct cop_error *err);
/* The same without the two fsyncs: a reader sees the old or the new content, and so does who starts after a crash of ours.  For what
 * a crash of the host makes worthless, or what is synced later with all else. */
int cop_write_file_unsynced(int at_fd, const char *path, const void *data, size_t n, mode_t mode,
                            struct cop_error *err);
/* write(2) until all n bytes are out (blocking fd). */
int cop_write_all(int fd, const void *data, size_t n);

/* mkdir -p with mode for the folders it makes; an existing folder is fine. */
int cop_mkdir_p(const char *path, mode_t mode, struct cop_error *err);
/* Tells the file system that the folders made in this one have nothing to do with each other: ext4 then spreads them over the disk (the T
 * of chattr(1)).  Without a journal it looks, for each new file, at all that were deleted near it during the last minute or five
 * (recently_deleted of fs/ext4/ialloc.c), which takes up to 0.6 ms a file where folders come and go.  Others may refuse; nothing is told. */
void cop_spread_subfolders(const char *path);
/* rm -rf without following links and without crossing mounts; a missing path is fine.  A tree of any depth needs at most
 * some 130 descriptors. */
int cop_remove_tree(int at_fd, const char *path, struct cop_error *err);

/* What the API calls the kind of a file: "file", "directory", "symlink", "fifo", "socket" or "device". */
const char *cop_file_type_name(mode_t mode);
/* Joins with snprintf into buf of size n: -ENAMETOOLONG when cut. */
int cop_path_format(char *buf, size_t n, const char *format, ...) __attribute__((format(printf, 3, 4)));
int cop_set_cloexec(int fd, int on);
int cop_set_nonblock(int fd, int on);
