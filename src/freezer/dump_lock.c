/* Locks and leases, as fdinfo tells of them: those that belong to a descriptor's description or, POSIX ones, to its file and process.
 *
 *      lock:   1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
 *      lock:   2: LEASE  ACTIVE    READ  4711 fe:00:1234 0 EOF
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
                /* What it was is not told any more, and the one who asked waits for some seconds at most. */
                if (strcmp(kind, "LEASE") == 0 && strcmp(state, "ACTIVE") != 0)
                        return cop_not_freezable(d, proc, err, "has a file lease that is asked back just now (fd %d)",
                                                 fd);
                lock.kind = strcmp(kind, "FLOCK") == 0   ? IMG_LOCK_FLOCK
                            : strcmp(kind, "POSIX") == 0 ? IMG_LOCK_POSIX
                            : strcmp(kind, "LEASE") == 0 ? IMG_LOCK_LEASE
                                                         : IMG_LOCK_OFD;
                lock.write = strcmp(mode, "WRITE") == 0;
                lock.start = start;
                if (strcmp(end, "EOF") != 0)
                        lock.end = strtoull(end, NULL, 10);
                cop_image_add(d->writer, IMG_LOCKS, &lock);
                ip->locks++;
        }
        return 0;
}
