#include "freezer/tool-mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mountinfo.h"

#define TEXT_MAX (16UL << 20)

static bool equal(const struct cop_mountinfo *a, const struct cop_mountinfo *b)
{
        return a->device == b->device && strcmp(a->root, b->root) == 0 && strcmp(a->mount_point, b->mount_point) == 0;
}

/* One that was found is no more: each of equal ones is another mount. */
static bool take(struct cop_mounts *ours, const struct cop_mountinfo *m)
{
        for (size_t i = 0; i < ours->count; i++)
                if (equal(&ours->list[i], m)) {
                        ours->list[i] = ours->list[--ours->count];
                        return true;
                }
        return false;
}

/* setup_inside() mounts each once. */
static bool is_made_by_setup(const struct cop_mountinfo *m, unsigned *seen)
{
        static const char *const points[] = {"/proc", "/dev/shm", "/dev/pts"};

        for (unsigned i = 0; i < ELEMENTSOF(points); i++)
                if (strcmp(m->mount_point, points[i]) == 0 && !(*seen & 1U << i)) {
                        *seen |= 1U << i;
                        return true;
                }
        return false;
}

int cop_tool_check_mounts(pid_t root, struct cop_error *err)
{
        _cleanup_(cop_mounts_done) struct cop_mounts ours = {0}, theirs = {0};
        unsigned seen = 0;
        char path[64];
        int r = cop_mounts_read(AT_FDCWD, "/proc/self/mountinfo", TEXT_MAX, &ours, err);

        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)root);
        /* Of a process that has ended there is nothing: the freeze says so. */
        (void)cop_mounts_read(AT_FDCWD, path, TEXT_MAX, &theirs, NULL);
        for (size_t i = 0; i < theirs.count; i++) {
                const struct cop_mountinfo *m = &theirs.list[i];
                if (!take(&ours, m) && !is_made_by_setup(m, &seen))
                        return cop_error_set(err, EOPNOTSUPP, COP_ERR_not_freezable,
                                             "something is mounted at %s that a thaw would not mount: cannot be frozen",
                                             m->mount_point);
        }
        return 0;
}
