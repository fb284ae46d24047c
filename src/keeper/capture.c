/* Theory of operation: see capture.h.
 *
 * Why data written through a shared mapping is not missed: a page that is clean and written again takes a fault, in which the
 * kernel sets the file's change time; a page that is dirty already does not.  So before a file is copied its dirty pages are given to
 * writeback (sync_file_range), which makes them clean and write-protected; a later store faults, the time changes, and the next pass
 * copies again.  A file that changed within the last clock ticks before it was looked at may change again without a new
 * time: it gets no note, so the next pass takes it again.
 */
#include "keeper/capture.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"

#define DEPTH_MAX 400
#define XATTR_MAX 65536
#define NOTE      "trusted.coppice.source" /* cannot be seen or set from a user namespace */
#define TICK      (20 * USEC_PER_MSEC)

struct note {
        uint64_t ino, size;
        int64_t ctime_sec, ctime_nsec;
};

struct frame { /* one folder in the three trees */
        int upper, layer, parent;
        int depth;
};

static struct note note_of(const struct stat *st)
{
        return (struct note){.ino = st->st_ino, .size = (uint64_t)st->st_size, .ctime_sec = st->st_ctim.tv_sec,
                             .ctime_nsec = st->st_ctim.tv_nsec};
}

/* Whether the copy `name` in dir_fd was made from exactly this state of the source. */
static bool copy_is_current(int dir_fd, const char *name, const struct note *want)
{
        struct note have;
        _cleanup_close_ int fd = dir_fd < 0 ? -EBADF : openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        return fd >= 0 && fgetxattr(fd, NOTE, &have, sizeof(have)) == sizeof(have) && memcmp(&have, want, sizeof(have)) == 0;
}

static int copy_xattrs(int from, int to)
{
        _cleanup_free_ char *names = malloc(XATTR_MAX), *value = malloc(XATTR_MAX);
        ssize_t n = names && value ? flistxattr(from, names, XATTR_MAX) : -1;

        for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
                ssize_t size = strcmp(name, NOTE) == 0 ? -1 : fgetxattr(from, name, value, XATTR_MAX);
                if (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0 && errno != ENOTSUP)
                        return -errno;
        }
        return n < 0 && errno != ENOTSUP ? -errno : 0;
}

static int copy_attributes(int from, int to, const struct stat *st)
{
        const struct timespec times[2] = {st->st_atim, st->st_mtim};

        if (fchown(to, st->st_uid, st->st_gid) < 0)
                return -errno;
        int r = copy_xattrs(from, to);
        if (r < 0)
                return r;
        return fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0 ? -errno : 0;
}

static int copy_data(int from, int to, uint64_t *bytes)
{
        if (ioctl(to, FICLONE, from) == 0)
                return 0;
        for (;;) {
                ssize_t n = copy_file_range(from, NULL, to, NULL, 1u << 30, 0);
                if (n == 0)
                        return 0;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                *bytes += (uint64_t)n;
        }
}

static int copy_file(struct cop_capture *c, const struct frame *f, const char *name)
{
        _cleanup_close_ int from = openat(f->upper, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -EBADF;
        struct stat st;

        if (from < 0)
                return errno == ENOENT ? 0 : -errno;
        sync_file_range(from, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE);
        if (fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
                return 0; /* replaced meanwhile: the pass during the stop sees what it is */
        struct note note = note_of(&st);
        usec_t changed = (usec_t)st.st_ctim.tv_sec * USEC_PER_SEC + (usec_t)st.st_ctim.tv_nsec / 1000;
        bool settled = cop_usec_add(changed, TICK) < cop_now(CLOCK_REALTIME);

        to = openat(f->layer, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
                return -errno;
        int r = copy_data(from, to, &c->bytes);
        if (r == 0)
                r = copy_attributes(from, to, &st);
        if (r == 0 && settled && !c->plain && fsetxattr(to, NOTE, &note, sizeof(note), 0) < 0 && errno != ENOTSUP)
                r = -errno;
        c->files++;
        return r;
}

static int capture_file(struct cop_capture *c, const struct frame *f, const char *name, const struct stat *st)
{
        struct note note = note_of(st);

        if (!c->plain && copy_is_current(f->layer, name, &note))
                return 0;
        int r = cop_remove_tree(f->layer, name, NULL);
        if (r < 0)
                return r;
        if (!c->plain && copy_is_current(f->parent, name, &note) && linkat(f->parent, name, f->layer, name, 0) == 0)
                return 0;
        return copy_file(c, f, name);
}

static int capture_link(const struct frame *f, const char *name, const struct stat *st)
{
        const struct timespec times[2] = {st->st_atim, st->st_mtim};
        char target[4097], have[4097];
        ssize_t n = readlinkat(f->upper, name, target, sizeof(target) - 1);

        if (n < 0)
                return errno == ENOENT || errno == EINVAL ? 0 : -errno;
        target[n] = '\0';
        ssize_t m = readlinkat(f->layer, name, have, sizeof(have) - 1);
        if (m == n && memcmp(have, target, (size_t)n) == 0)
                return 0;
        int r = cop_remove_tree(f->layer, name, NULL);
        if (r < 0)
                return r;
        if (symlinkat(target, f->layer, name) < 0 || fchownat(f->layer, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        utimensat(f->layer, name, times, AT_SYMLINK_NOFOLLOW);
        return 0;
}

/* Whiteouts (character device 0:0), FIFOs and socket files are remade; there are no other devices in a user namespace. */
static int capture_special(const struct frame *f, const char *name, const struct stat *st)
{
        struct stat have;

        if (fstatat(f->layer, name, &have, AT_SYMLINK_NOFOLLOW) == 0 && have.st_mode == st->st_mode && have.st_uid == st->st_uid &&
            have.st_gid == st->st_gid && have.st_rdev == st->st_rdev)
                return 0;
        if ((S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) && st->st_rdev != 0)
                return 0;
        int r = cop_remove_tree(f->layer, name, NULL);
        if (r < 0)
                return r;
        if (mknodat(f->layer, name, st->st_mode, st->st_rdev) < 0 ||
            fchownat(f->layer, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
            fchmodat(f->layer, name, st->st_mode & 07777, 0) < 0)
                return -errno;
        return 0;
}

static int capture_folder(struct cop_capture *c, const struct frame *f);

static int enter_folder(struct cop_capture *c, const struct frame *f, const char *name)
{
        _cleanup_close_ int upper = openat(f->upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), layer = -EBADF,
                            parent = -EBADF;
        struct stat have;

        if (upper < 0)
                return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
        if (f->depth >= DEPTH_MAX)
                return -ELOOP;
        if (fstatat(f->layer, name, &have, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(have.st_mode) && unlinkat(f->layer, name, 0) < 0)
                return -errno;
        if (mkdirat(f->layer, name, 0700) < 0 && errno != EEXIST)
                return -errno;
        layer = openat(f->layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (layer < 0)
                return -errno;
        if (f->parent >= 0)
                parent = openat(f->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        const struct frame inner = {.upper = upper, .layer = layer, .parent = parent, .depth = f->depth + 1};
        return capture_folder(c, &inner);
}

static int capture_entry(struct cop_capture *c, const struct frame *f, const char *name)
{
        struct stat st;

        if (fstatat(f->upper, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        switch (st.st_mode & S_IFMT) {
        case S_IFDIR:
                return enter_folder(c, f, name);
        case S_IFREG:
                return capture_file(c, f, name, &st);
        case S_IFLNK:
                return capture_link(f, name, &st);
        case S_IFSOCK:
                if (c->plain)
                        return 0;
                /* fall through */
        default:
                return capture_special(f, name, &st);
        }
}

/* What the layer has and the upper directory has not any more. */
static int remove_gone(const struct frame *f)
{
        int copy = openat(f->layer, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        struct stat st;

        if (!dir) {
                cop_close(copy);
                return -errno;
        }
        while ((entry = readdir(dir))) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                    fstatat(f->upper, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        continue;
                int r = errno == ENOENT ? cop_remove_tree(f->layer, entry->d_name, NULL) : -errno;
                if (r < 0)
                        return r;
        }
        return 0;
}

static int capture_folder(struct cop_capture *c, const struct frame *f)
{
        int copy = openat(f->upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        struct stat st;

        if (!dir) {
                r = -errno;
                cop_close(copy);
                return r;
        }
        while (r == 0 && (entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        r = capture_entry(c, f, entry->d_name);
        if (r == 0)
                r = remove_gone(f);
        if (r == 0 && fstat(f->upper, &st) < 0)
                r = -errno;
        return r < 0 ? r : copy_attributes(f->upper, f->layer, &st); /* last: times change while entries are made */
}

int cop_capture_pass(struct cop_capture *c, struct cop_error *err)
{
        const struct frame top = {.upper = c->upper_fd, .layer = c->layer_fd, .parent = c->parent_fd};
        int r = capture_folder(c, &top);

        return r < 0 ? cop_error_errno(err, r, "saving the sandbox's files") : 0;
}
