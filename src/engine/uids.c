/* Theory of operation
 *
 * Daemons on different homes know nothing of each other's rows, but a uid is one on the whole machine: two sandboxes with the
 * same range could signal each other's processes, were they ever to see them, and share limits that count by uid.  So a range
 * is claimed by a lock on the byte at uid_base / 65536 of one file.  It is a lock of the open file description: the keeper has
 * a copy of the descriptor from its start to its end, so the claim lasts as long as the sandbox runs, over the death of the
 * daemon, and cannot be left behind.  The file never has content and is never removed.
 *
 * The slot in the store stays the first choice; a sandbox that sleeps has no claim and may find its range taken when it wakes.
 */
#include "engine/uids.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "engine/sandbox.h"

#define UID_BASE_DEFAULT (1000u * COP_SLOT_IDS)
#define UID_END (1u << 31)

static int claims_path(const char *chosen, char **ret, struct cop_error *err)
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        int n = 0;

        if (chosen)
                *ret = strdup(chosen);
        else if (geteuid() == 0 || !runtime || !*runtime)
                *ret = strdup("/run/coppice/uids");
        else
                n = asprintf(ret, "%s/coppice/uids", runtime);
        return n >= 0 && *ret ? 0 : cop_error_errno(err, ENOMEM, "engine");
}

int cop_uids_choose(struct cop_engine *e, const struct cop_engine_config *config, struct cop_error *err)
{
        e->uid_base = config->uid_base ? config->uid_base : UID_BASE_DEFAULT;
        /* Below 2^31: some programs keep uids in an int. */
        unsigned most = e->uid_base < UID_END ? (UID_END - e->uid_base) / COP_SLOT_IDS : 0;
        e->slots = config->slots ? config->slots : most;
        if (e->uid_base % COP_SLOT_IDS != 0 || e->slots > most || e->slots == 0)
                return cop_error_set(
                        err, ERANGE, COP_ERR_bad_request,
                        "uid range: expected a multiple of 65536 and room for %u sandboxes below 2^31, not %u",
                        e->slots, e->uid_base);
        return claims_path(config->uid_claims, &e->uid_claims, err);
}

static int open_claims(const struct cop_engine *e, struct cop_error *err)
{
        char dir[4096];

        int r = cop_path_format(dir, sizeof(dir), "%s", e->uid_claims);
        if (r < 0)
                return cop_error_errno(err, r, "%s", e->uid_claims);
        *strrchr(dir, '/') = '\0';
        r = cop_mkdir_p(dir, 0755, err);
        if (r < 0)
                return cop_error_wrap(err, r, "making the folder of the uid ranges in use");
        int fd = open(e->uid_claims, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        return fd < 0 ? cop_error_errno(err, errno, "opening %s, which tells the uid ranges in use", e->uid_claims)
                      : fd;
}

static struct flock range(const struct cop_engine *e, unsigned slot)
{
        return (struct flock){.l_type = F_WRLCK,
                              .l_whence = SEEK_SET,
                              .l_start = (off_t)(e->uid_base / COP_SLOT_IDS + slot),
                              .l_len = 1};
}

int cop_uids_take(struct cop_engine *e, unsigned *slot, int *ret_fd, struct cop_error *err)
{
        _cleanup_close_ int fd = open_claims(e, err);
        unsigned at = *slot;
        bool around = false;

        if (fd < 0)
                return fd;
        for (;;) {
                struct flock lock = range(e, at);
                if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
                        break;
                if (errno != EAGAIN && errno != EACCES)
                        return cop_error_errno(err, errno, "claiming a uid range");
                int r = cop_store_sandbox_free_slot(e->store, at + 1, e->slots, &at, err);
                if (r == -EAGAIN && !around) {
                        around = true; /* gaps before the first choice are left */
                        r = cop_store_sandbox_free_slot(e->store, 0, e->slots, &at, err);
                }
                if (r < 0)
                        return r;
        }
        *slot = at;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int cop_uids_claimed(struct cop_engine *e, struct cop_error *err)
{
        _cleanup_close_ int fd = open_claims(e, err);
        int count = 0;

        if (fd < 0)
                return fd;
        for (off_t at = 0;; count++) {
                struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at};
                if (fcntl(fd, F_OFD_GETLK, &lock) < 0)
                        return cop_error_errno(err, errno, "counting the uid ranges in use");
                if (lock.l_type == F_UNLCK)
                        return count;
                at = MAX_OF(at, lock.l_start) + 1;
        }
}
