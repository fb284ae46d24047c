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
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
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

/* -- a stack ---------------------------------------------------------------------------------------------------------------------- */

/* layers[begin … end) as one folder: by halves, so that a name is linked as often as the stack can be halved, not once for every layer.
 * Temporary folders lie in work_fd under running numbers. */
struct folding {
        const char *const *layers;
        int work_fd;
        unsigned next;
};

static int fold(struct folding *f, size_t begin, size_t end, int *ret_fd, char name[static 16], struct cop_error *err)
{
        _cleanup_close_ int upper = -EBADF, lower = -EBADF, target = -EBADF;
        char upper_name[16] = "", lower_name[16] = "";

        name[0] = '\0';
        if (end - begin == 1) {
                *ret_fd = open_at(AT_FDCWD, f->layers[begin]);
                return *ret_fd < 0 ? cop_error_errno(err, *ret_fd, "opening %s", f->layers[begin]) : 0;
        }
        size_t middle = begin + (end - begin) / 2;
        int r = fold(f, begin, middle, &upper, upper_name, err);
        if (r == 0)
                r = fold(f, middle, end, &lower, lower_name, err);
        if (r < 0)
                return r;
        snprintf(name, 16, "%u", f->next++);
        if (mkdirat(f->work_fd, name, 0700) < 0)
                return cop_error_errno(err, errno, "making a folder to merge layers in");
        target = open_at(f->work_fd, name);
        r = target < 0 ? cop_error_errno(err, target, "merging layers") : cop_layer_merge(upper, lower, target, err);
        if (r == 0 && upper_name[0])
                r = cop_remove_tree(f->work_fd, upper_name, err);
        if (r == 0 && lower_name[0])
                r = cop_remove_tree(f->work_fd, lower_name, err);
        if (r == 0)
                *ret_fd = TAKE_FD(target);
        return r;
}

/* The last folder of the fold moves to its place. */
static int put_in_place(int work_fd, const char *name, const char *target, struct cop_error *err)
{
        if (syncfs(work_fd) < 0)
                return cop_error_errno(err, errno, "writing %s to disk", target);
        if (renameat(work_fd, name, AT_FDCWD, target) < 0)
                return cop_error_errno(err, errno, "renaming to %s", target);
        return syncfs(work_fd) < 0 ? cop_error_errno(err, errno, "writing %s to disk", target) : 0;
}

int cop_layer_merge_stack(const char *const *layers, size_t count, const char *target, struct cop_error *err)
{
        _cleanup_close_ int work_fd = -EBADF, result_fd = -EBADF;
        struct folding f = {.layers = layers};
        char partial[PATH_MAX], name[16];
        struct stat st;

        if (lstat(target, &st) == 0)
                return 0;
        int r = cop_path_format(partial, sizeof(partial), "%s.partial", target);
        if (r < 0)
                return cop_error_errno(err, r, "%s", target);
        if (count < 2)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "a stack to merge has two layers or more");
        r = cop_remove_tree(AT_FDCWD, partial, err);
        if (r == 0 && mkdir(partial, 0700) < 0)
                r = cop_error_errno(err, errno, "making %s", partial);
        if (r == 0)
                r = f.work_fd = work_fd = open_at(AT_FDCWD, partial);
        if (r >= 0)
                r = fold(&f, 0, count, &result_fd, name, err);
        if (r == 0)
                r = put_in_place(work_fd, name, target, err);
        int removed = cop_remove_tree(AT_FDCWD, partial, NULL);
        return r < 0 ? r : removed < 0 ? cop_error_errno(err, removed, "removing %s", partial) : 0;
}
