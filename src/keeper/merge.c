/* Theory of operation
 *
 *      upper has           lower has           target gets
 *      folder              folder              both merged, attributes of upper; opaque when one of them is
 *      folder, opaque      anything            the folder of upper alone
 *      folder              nothing             the folder of upper
 *      folder              whiteout or a file  the folder of upper, opaque: what is below the whiteout must not come through
 *      anything else       anything            what upper has, a whiteout too: there may be more below
 *      nothing             anything            what lower has
 *
 * The top folders are merged as any other.
 */
#include "keeper/merge.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "keeper/capture-copy.h"

#define OPAQUE "user.overlay.opaque"
#define DEPTH_MAX 500

static bool is_opaque(int fd)
{
        char value;

        return fgetxattr(fd, OPAQUE, &value, 1) == 1 && value == 'y';
}

static int refuse_foreign(int fd)
{
        return fgetxattr(fd, "user.overlay.redirect", NULL, 0) >= 0 ||
                               fgetxattr(fd, "user.overlay.metacopy", NULL, 0) >= 0
                       ? -EOPNOTSUPP
                       : 0;
}

static int open_at(int at_fd, const char *name)
{
        int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

static int merge(int upper, int lower, int target, bool hides, int depth);

/* name is a folder in `from`; lower -EBADF: nothing to merge with. */
static int put_folder(int from, int lower, int target, const char *name, bool hides, int depth)
{
        _cleanup_close_ int a = open_at(from, name), b = lower < 0 ? -EBADF : open_at(lower, name), t = -EBADF;

        if (a < 0 || (lower >= 0 && b < 0))
                return a < 0 ? a : b;
        if (mkdirat(target, name, 0700) < 0)
                return -errno;
        t = open_at(target, name);
        return t < 0 ? t : merge(a, b, t, hides, depth + 1);
}

static int put_entry(int from, int lower, int target, const char *name, int depth)
{
        struct stat st, below;

        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return linkat(from, name, target, name, 0) < 0 ? -errno : 0;
        bool there = lower >= 0 && fstatat(lower, name, &below, AT_SYMLINK_NOFOLLOW) == 0;
        bool folder = there && S_ISDIR(below.st_mode);
        return put_folder(from, folder ? lower : -EBADF, target, name, there && !folder, depth);
}

/* All names of `from`, but not those that `except` has. */
static int put_entries(int from, int except, int lower, int target, int depth)
{
        int copy = open_at(from, "."), r = copy < 0 ? copy : 0;
        _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        struct stat st;

        if (!dir && copy >= 0) {
                r = -errno;
                cop_close(copy);
        }
        while (r == 0 && dir && (entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                    (except < 0 || fstatat(except, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0))
                        r = put_entry(from, lower, target, entry->d_name, depth);
        return r;
}

/* lower may be -EBADF.  hides: something that is no folder lies below the folder `upper`. */
static int merge(int upper, int lower, int target, bool hides, int depth)
{
        bool opaque = is_opaque(upper), below_opaque = lower >= 0 && is_opaque(lower);
        struct stat st;

        if (depth > DEPTH_MAX)
                return -ELOOP;
        int r = refuse_foreign(upper);
        if (r == 0 && lower >= 0)
                r = refuse_foreign(lower);
        if (r == 0)
                r = put_entries(upper, -EBADF, opaque ? -EBADF : lower, target, depth);
        if (r == 0 && lower >= 0 && !opaque)
                r = put_entries(lower, upper, -EBADF, target, depth);
        if (r == 0 && fstat(upper, &st) < 0)
                r = -errno;
        if (r == 0)
                r = cop_capture_copy_folder_attributes(upper, target, &st);
        if (r == 0 && !opaque && (below_opaque || hides) && fsetxattr(target, OPAQUE, "y", 1, 0) < 0)
                r = -errno;
        return r;
}

int cop_layer_merge(int upper_fd, int lower_fd, int target_fd, struct cop_error *err)
{
        int r = merge(upper_fd, lower_fd, target_fd, false, 0);

        if (r == -EOPNOTSUPP)
                return cop_error_set(err, EOPNOTSUPP, COP_ERR_unsupported,
                                     "a layer was made by an overlay with redirects or metacopies");
        return r < 0 ? cop_error_errno(err, r, "merging two layers") : 0;
}
