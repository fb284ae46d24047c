#include "pack/extract.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define IDS 65536 /* of a sandbox */
#define ATTRIBUTES_MAX 100
#define ATTRIBUTE_SIZE_MAX 65536
#define FILE_SIZE_MAX (1LL << 50)

static int refuse(const struct cop_place *place, const char *why, struct cop_error *err)
{
        return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                             "the pack's member \"%.200s\" %s; nothing of the pack was kept", place->path, why);
}

static int failed(const struct cop_place *place, int errnum, struct cop_error *err)
{
        if (errnum == EEXIST)
                return refuse(place, "comes twice", err);
        if (errnum == ELOOP || errnum == ENOTDIR || errnum == EXDEV || errnum == ENAMETOOLONG)
                return refuse(place, "lies behind what is no folder", err);
        return cop_error_errno(err, errnum, "unpacking %.200s", place->path);
}

/* -- folders ------------------------------------------------------------------------------------------------------------ */

static int make_parents(struct cop_extract *x, char *dir)
{
        int r = 0;

        for (char *slash = dir; r == 0 && slash; *slash = '/') {
                slash = strchr(slash + 1, '/');
                if (!slash)
                        break;
                *slash = '\0';
                _cleanup_close_ int have = cop_open_beneath(x->root_fd, dir, O_PATH | O_DIRECTORY, 0, 1, NULL);
                if (have == -ENOENT) {
                        char *last = strrchr(dir, '/');
                        if (last)
                                *last = '\0';
                        _cleanup_close_ int up =
                                last ? cop_open_beneath(x->root_fd, dir, O_PATH | O_DIRECTORY, 0, 1, NULL)
                                     : fcntl(x->root_fd, F_DUPFD_CLOEXEC, 0);
                        if (last)
                                *last = '/';
                        r = up < 0 ? up : mkdirat(up, last ? last + 1 : dir, 0700) < 0 ? -errno : 0;
                } else if (have < 0) {
                        r = have;
                }
        }
        return r;
}

/* The folder of a member; *ret_base is its name in there. */
static int open_parent(struct cop_extract *x, const char *path, const char **ret_base)
{
        const char *slash = strrchr(path, '/');
        size_t n = slash ? (size_t)(slash - path) : 0;
        char dir[sizeof(x->parent) + 2];

        *ret_base = slash ? slash + 1 : path;
        if (x->parent_fd >= 0 && strlen(x->parent) == n && memcmp(x->parent, path, n) == 0)
                return x->parent_fd;
        x->parent_fd = cop_close(x->parent_fd);
        memcpy(x->parent, path, n);
        x->parent[n] = '\0';
        if (n == 0)
                return x->parent_fd = fcntl(x->root_fd, F_DUPFD_CLOEXEC, 0);
        x->parent_fd = cop_open_beneath(x->root_fd, x->parent, O_PATH | O_DIRECTORY, 0, 1, NULL);
        if (x->parent_fd == -ENOENT) {
                snprintf(dir, sizeof(dir), "%s/", x->parent);
                int r = make_parents(x, dir);
                if (r < 0)
                        return r;
                x->parent_fd = cop_open_beneath(x->root_fd, x->parent, O_PATH | O_DIRECTORY, 0, 1, NULL);
        }
        return x->parent_fd;
}

void cop_extract_done(struct cop_extract *x)
{
        x->parent_fd = cop_close(x->parent_fd);
}

/* -- attributes --------------------------------------------------------------------------------------------------------- */

static int check_owner(struct archive_entry *entry, const struct cop_place *place, struct cop_error *err)
{
        la_int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);

        if (uid < 0 || uid >= IDS || gid < 0 || gid >= IDS)
                return refuse(place, "belongs to a user that no sandbox has", err);
        return 0;
}

static bool attribute_is_sound(const char *name, size_t size)
{
        return size <= ATTRIBUTE_SIZE_MAX &&
               (strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 ||
                strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0);
}

/* The order: a change of owner takes file capabilities and setuid bits away, an access list changes the mode. */
static int set_attributes(int fd, struct archive_entry *entry, const struct cop_place *place, mode_t mode,
                          struct cop_error *err)
{
        const struct timespec times[2] = {
                {.tv_nsec = UTIME_OMIT},
                {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};
        unsigned count = 0;
        const char *name;
        const void *value;
        size_t size;

        if (fchown(fd, (uid_t)archive_entry_uid(entry), (gid_t)archive_entry_gid(entry)) < 0)
                return failed(place, errno, err);
        archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
                if (++count > ATTRIBUTES_MAX || !attribute_is_sound(name, size))
                        return refuse(place, "has an extended attribute that no sandbox can set", err);
                if (fsetxattr(fd, name, value, size, 0) < 0)
                        return failed(place, errno == EEXIST ? EIO : errno, err);
        }
        if (fchmod(fd, mode) < 0 || futimens(fd, times) < 0)
                return failed(place, errno, err);
        return 0;
}

static int set_plain_attributes(int dir_fd, const char *base, struct archive_entry *entry,
                                const struct cop_place *place, struct cop_error *err)
{
        const struct timespec times[2] = {
                {.tv_nsec = UTIME_OMIT},
                {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};

        if (fchownat(dir_fd, base, (uid_t)archive_entry_uid(entry), (gid_t)archive_entry_gid(entry),
                     AT_SYMLINK_NOFOLLOW) < 0)
                return failed(place, errno, err);
        /* What it is was decided here a moment ago, and nobody else works in this folder. */
        if (archive_entry_filetype(entry) != AE_IFLNK &&
            fchmodat(dir_fd, base, archive_entry_mode(entry) & 07777, 0) < 0)
                return failed(place, errno, err);
        return utimensat(dir_fd, base, times, AT_SYMLINK_NOFOLLOW) < 0 ? failed(place, errno, err) : 0;
}

/* -- data --------------------------------------------------------------------------------------------------------------- */

/* One block of the member's data: 1, 0 at its end. */
static int next_block(struct cop_extract *x, const void **ret, size_t *ret_n, la_int64_t *ret_offset,
                      struct cop_error *err)
{
        int status = archive_read_data_block(x->archive, ret, ret_n, ret_offset);

        if (status == ARCHIVE_EOF)
                return 0;
        if (status != ARCHIVE_OK || *ret_offset < 0)
                return cop_pack_stream_fail(x->stream, err);
        cop_sums_data(x->sums, (uint64_t)*ret_offset, *ret, *ret_n);
        return 1;
}

int cop_extract_skip(struct cop_extract *x, struct cop_error *err)
{
        const void *data;
        la_int64_t offset;
        size_t n;
        int r;

        while ((r = next_block(x, &data, &n, &offset, err)) > 0)
                ;
        return r;
}

static int write_block(int fd, const char *data, size_t n, la_int64_t offset)
{
        while (n > 0) {
                ssize_t done = pwrite(fd, data, n, offset);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0)
                        return -errno;
                data += done;
                offset += done;
                n -= (size_t)done;
        }
        return 0;
}

static int write_data(struct cop_extract *x, int fd, la_int64_t size, const struct cop_place *place,
                      struct cop_error *err)
{
        const void *data;
        la_int64_t offset;
        size_t n;
        int r;

        while ((r = next_block(x, &data, &n, &offset, err)) > 0) {
                if (offset > size || (la_int64_t)n > size - offset)
                        return refuse(place, "has more data than it says", err);
                if (n > x->room)
                        return cop_error_set(
                                err, ENOSPC, COP_ERR_disk_full,
                                "the pack is larger than what is free on the disk of COPPICE_HOME; free some "
                                "space and unpack it again");
                x->room -= n;
                r = write_block(fd, data, n, offset);
                if (r < 0)
                        return failed(place, -r, err);
        }
        return r < 0 ? r : ftruncate(fd, size) < 0 ? failed(place, errno, err) : 0;
}

/* -- kinds -------------------------------------------------------------------------------------------------------------- */

static int extract_file(struct cop_extract *x, struct archive_entry *entry, const struct cop_place *place, int dir_fd,
                        const char *base, struct cop_error *err)
{
        bool in_tree = place->kind == COP_PLACE_LAYER || place->kind == COP_PLACE_IPC;
        la_int64_t size = archive_entry_size(entry);
        mode_t mode = archive_entry_mode(entry) & (in_tree ? 07777 : 0755);
        _cleanup_close_ int fd = openat(dir_fd, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0)
                return failed(place, errno, err);
        if (size < 0 || size > FILE_SIZE_MAX)
                return refuse(place, "has an impossible size", err);
        int r = write_data(x, fd, size, place, err);
        return r < 0 ? r : set_attributes(fd, entry, place, mode, err);
}

static int extract_folder(struct archive_entry *entry, const struct cop_place *place, int dir_fd, const char *base,
                          struct cop_error *err)
{
        if (mkdirat(dir_fd, base, 0700) < 0 && errno != EEXIST)
                return failed(place, errno, err);
        _cleanup_close_ int fd = openat(dir_fd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return failed(place, errno, err);
        return set_attributes(fd, entry, place, archive_entry_mode(entry) & 07777, err);
}

static int extract_other(struct archive_entry *entry, const struct cop_place *place, int dir_fd, const char *base,
                         struct cop_error *err)
{
        const char *target = archive_entry_symlink(entry);
        int r;

        switch (archive_entry_filetype(entry)) {
        case AE_IFLNK: /* where it leads is the sandbox's affair: nobody follows it here */
                if (!target || !*target)
                        return refuse(place, "is a link to nothing", err);
                r = symlinkat(target, dir_fd, base);
                break;
        case AE_IFIFO:
                r = mknodat(dir_fd, base, S_IFIFO | 0600, 0);
                break;
        case AE_IFCHR:
                if (archive_entry_rdev(entry) != 0)
                        return refuse(place, "is a device", err);
                r = mknodat(dir_fd, base, S_IFCHR | 0600, makedev(0, 0)); /* a whiteout */
                break;
        default:
                return refuse(place, "is of a kind that no node has", err);
        }
        return r < 0 ? failed(place, errno, err) : set_plain_attributes(dir_fd, base, entry, place, err);
}

static int extract_hardlink(struct cop_extract *x, const char *target, const struct cop_place *place, size_t layers,
                            int dir_fd, const char *base, struct cop_error *err)
{
        struct cop_place from;
        char dir[sizeof(from.path)];
        int r = cop_place_of(target, layers, &from, err);

        if (r < 0)
                return r;
        const char *end = strchr(strncmp(from.path, "below/", 6) == 0 ? from.path + 6 : from.path, '/');
        if (from.kind != place->kind || !end || strncmp(from.path, place->path, (size_t)(end - from.path) + 1) != 0)
                return refuse(place, "is a hard link out of its tree", err);
        char *slash = strrchr(from.path, '/');
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash - from.path), from.path);
        _cleanup_close_ int from_fd = cop_open_beneath(x->root_fd, dir, O_PATH | O_DIRECTORY, 0, 1, NULL);
        if (from_fd < 0 || linkat(from_fd, slash + 1, dir_fd, base, 0) < 0) {
                int e = from_fd < 0 ? -from_fd : errno;
                return e == ENOENT || e == EPERM ? refuse(place, "is a hard link to what the pack does not have", err)
                                                 : failed(place, e, err);
        }
        return 0;
}

int cop_extract_member(struct cop_extract *x, struct archive_entry *entry, const struct cop_place *place, size_t layers,
                       struct cop_error *err)
{
        bool in_tree = place->kind == COP_PLACE_LAYER || place->kind == COP_PLACE_IPC;
        const char *base, *hardlink = archive_entry_hardlink(entry);
        unsigned type = archive_entry_filetype(entry);

        int r = check_owner(entry, place, err);
        if (r < 0)
                return r;
        if ((!in_tree && (hardlink || type != AE_IFREG)) || (place->top && (hardlink || type != AE_IFDIR)))
                return refuse(place, "is of another kind than it has to be", err);
        if ((hardlink || type != AE_IFREG) && archive_entry_size(entry) > 0)
                return refuse(place, "has data and is no file", err);
        int dir_fd = open_parent(x, place->path, &base);
        if (dir_fd < 0)
                return failed(place, -dir_fd, err);
        if (hardlink)
                return extract_hardlink(x, hardlink, place, layers, dir_fd, base, err);
        if (type == AE_IFREG)
                return extract_file(x, entry, place, dir_fd, base, err);
        return type == AE_IFDIR ? extract_folder(entry, place, dir_fd, base, err)
                                : extract_other(entry, place, dir_fd, base, err);
}
