/* Locks and leases, as fdinfo tells of them: those that belong to a descriptor's description or, POSIX ones, to its file and process.
 *
 *      lock:   1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
 *      lock:   2: LEASE  ACTIVE    READ  4711 fe:00:1234 0 EOF
 *      lock:   3: LEASE  BREAKING  UNLCK 4711 fe:00:1234 0 EOF
 *
 * Of a lease that is asked back, what is to be left is told, not what it was.  One for reading cannot be had by who may write; else a
 * reader is asked: he would have to wait only for a lease for writing, and as it is asked back already, its holder is told nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "freezer/dump.h"

#define BEGIN "lock:\t"

bool cop_dump_has_lease(const char *text)
{
        for (const char *line = strstr(text, BEGIN); line; line = strstr(line + 5, BEGIN)) {
                char kind[16];
                if (sscanf(line, BEGIN "%*d: %15s", kind) == 1 && strcmp(kind, "LEASE") == 0)
                        return true;
        }
        return false;
}

static bool was_for_writing(const struct cop_dump *d, uint32_t proc, int fd, const char *text)
{
        char path[32];

        if ((cop_procfs_field_u64(text, "flags", 8) & O_ACCMODE) != O_RDONLY)
                return true;
        snprintf(path, sizeof(path), "fd/%d", fd);
        _cleanup_close_ int reader = openat(d->tree.procs[proc].dir_fd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        return reader < 0 && errno == EWOULDBLOCK;
}

int cop_dump_locks(struct cop_dump *d, uint32_t proc, int fd, const char *text, struct cop_error *err)
{
        struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc);

        for (const char *line = strstr(text, BEGIN); line; line = strstr(line + 5, BEGIN)) {
                struct img_lock lock = {.fd = fd, .end = UINT64_MAX};
                char kind[16], state[16], mode[16], end[24];
                unsigned long long start;
                if (sscanf(line, BEGIN "%*d: %15s %15s %15s %*d %*s %llu %23s", kind, state, mode, &start, end) != 5 ||
                    kind[0] == '-' /* waits for one */)
                        continue;
                lock.kind = strcmp(kind, "FLOCK") == 0   ? IMG_LOCK_FLOCK
                            : strcmp(kind, "POSIX") == 0 ? IMG_LOCK_POSIX
                            : strcmp(kind, "LEASE") == 0 ? IMG_LOCK_LEASE
                                                         : IMG_LOCK_OFD;
                lock.write = strcmp(mode, "WRITE") == 0;
                if (lock.kind == IMG_LOCK_LEASE && strcmp(state, "BREAKING") == 0) {
                        lock.breaking = strcmp(mode, "READ") == 0 ? IMG_BREAK_TO_READ : IMG_BREAK_AWAY;
                        lock.write = lock.breaking == IMG_BREAK_TO_READ || was_for_writing(d, proc, fd, text);
                }
                lock.start = start;
                if (strcmp(end, "EOF") != 0)
                        lock.end = strtoull(end, NULL, 10);
                cop_image_add(d->writer, IMG_LOCKS, &lock);
                ip->locks++;
        }
        return 0;
}
