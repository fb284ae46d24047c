/* The path of an inode, by looking. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Searches the folder `start` (relative to root_fd, "" for itself) and what is below it on the same mount, breadth first,
 * for at most `budget` entries; *budget is reduced by what was used.  0 and a path relative to root_fd, -ENOENT (not there),
 * -EAGAIN (budget used up), -ENOMEM. */
int cop_find_inode(int root_fd, const char *start, dev_t dev, ino_t ino, size_t *budget, char *ret_path, size_t size);
