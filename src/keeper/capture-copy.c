/* Theory of operation
 *
 * Why data written through a shared mapping is not missed: a page that is clean and written again takes a fault, in which the
 * kernel sets the file's change time; a page that is dirty already does not.  So before a file is copied its dirty pages are given to
 * writeback (sync_file_range), which makes them clean and write-protected; a later store faults, the time changes, and the next pass
 * copies again.  A file that changed within the last clock ticks before it was looked at may change again without a new
 * time: it gets no note, so the next pass takes it again.
 *
 * The order within a copy: data, owner, attributes, mode, times.  A change of owner takes away file capabilities and setuid bits, an
 * access list changes the mode, and all of them the times.
 */
#include "keeper/capture-copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define XATTR_MAX 65536
#define CHUNK (64u << 20)             /* between two looks at `cancel` */
#define PATIENT_SIZE (4 << 20)        /* takes longer to copy than a tick */
#define NOTE "trusted.coppice.source" /* cannot be seen or set from a user namespace */

struct cop_capture_note cop_capture_note_of(const struct stat *st)
{
        return (struct cop_capture_note){.ino = st->st_ino,
                                         .size = (uint64_t)st->st_size,
                                         .ctime_sec = st->st_ctim.tv_sec,
                                         .ctime_nsec = st->st_ctim.tv_nsec};
}

bool cop_capture_settled(const struct stat *st)
{
        usec_t changed = (usec_t)st->st_ctim.tv_sec * USEC_PER_SEC + (usec_t)st->st_ctim.tv_nsec / 1000;

        return cop_usec_add(changed, COP_CAPTURE_TICK) < cop_now(CLOCK_REALTIME);
}

bool cop_capture_is_current(int dir_fd, const char *name, const struct cop_capture_note *want)
{
        struct cop_capture_note have;
        struct stat st;

        if (dir_fd < 0 || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            (uint64_t)st.st_size != want->size)
                return false;
        _cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return fd >= 0 && fgetxattr(fd, NOTE, &have, sizeof(have)) == sizeof(have) &&
               memcmp(&have, want, sizeof(have)) == 0;
}

/* Where attributes are read and set: an open file, or a link or special file, which cannot be opened, in an open folder. */
struct place {
        char path[300];
        bool follow; /* the path is one of /proc that leads to the file itself */
};

static struct place place_of(int dir_fd, const char *name)
{
        struct place p = {.follow = name == NULL};

        snprintf(p.path, sizeof(p.path), "/proc/self/fd/%d%s%s", dir_fd, name ? "/" : "", name ? name : "");
        return p;
}

static ssize_t list_names(const struct place *p, char *names, size_t size)
{
        return p->follow ? listxattr(p->path, names, size) : llistxattr(p->path, names, size);
}

static ssize_t get_value(const struct place *p, const char *name, char *value, size_t size)
{
        return p->follow ? getxattr(p->path, name, value, size) : lgetxattr(p->path, name, value, size);
}

static int copy_attribute(const struct place *from, const struct place *to, const char *name, char *value)
{
        ssize_t size = get_value(from, name, value, XATTR_MAX);

        if (size < 0)
                return errno == ENODATA ? 0 : -errno;
        int r = to->follow ? setxattr(to->path, name, value, (size_t)size, 0)
                           : lsetxattr(to->path, name, value, (size_t)size, 0);
        return r < 0 && errno != ENOTSUP ? -errno : 0;
}

static int remove_stale(const struct place *from, const struct place *to, char *names)
{
        ssize_t n = list_names(to, names, XATTR_MAX);

        for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1)
                if (get_value(from, name, NULL, 0) < 0 && errno == ENODATA && removexattr(to->path, name) < 0 &&
                    errno != ENODATA)
                        return -errno;
        return 0;
}

/* stale: the target is a folder that may have others of its own. */
static int copy_attributes(const struct place *from, const struct place *to, bool stale)
{
        ssize_t n = list_names(from, NULL, 0);
        int r = 0;

        if (n < 0 && errno != ENOTSUP)
                return -errno;
        if (n <= 0 && !(stale && list_names(to, NULL, 0) > 0)) /* nearly always */
                return 0;
        _cleanup_free_ char *names = malloc(XATTR_MAX), *value = malloc(XATTR_MAX);
        if (!names || !value)
                return -ENOMEM;
        if (stale)
                r = remove_stale(from, to, names);
        n = list_names(from, names, XATTR_MAX);
        if (n < 0)
                return errno == ENOTSUP ? r : -errno;
        for (char *name = names; r == 0 && name < names + n; name += strlen(name) + 1)
                if (strcmp(name, NOTE) != 0)
                        r = copy_attribute(from, to, name, value);
        return r;
}

int cop_capture_copy_folder_attributes(int upper_fd, int layer_fd, const struct stat *st)
{
        const struct timespec times[2] = {st->st_atim, st->st_mtim};
        struct place from = place_of(upper_fd, NULL), to = place_of(layer_fd, NULL);

        if (fchown(layer_fd, st->st_uid, st->st_gid) < 0)
                return -errno;
        int r = copy_attributes(&from, &to, true);
        if (r < 0)
                return r;
        return fchmod(layer_fd, st->st_mode & 07777) < 0 || futimens(layer_fd, times) < 0 ? -errno : 0;
}

static int copy_range(struct cop_capture *c, int from, int to, off_t begin, off_t end)
{
        off_t in = begin, out = begin;

        while (in < end) {
                size_t left = (size_t)(end - in);
                if (atomic_load(&c->cancel))
                        return -ECANCELED;
                ssize_t n = copy_file_range(from, &in, to, &out, left < CHUNK ? left : CHUNK, 0);
                if (n < 0 && errno == EXDEV) /* a node on another filesystem */
                        n = lseek(to, out, SEEK_SET) < 0 ? -1 : sendfile(to, from, &in, left < CHUNK ? left : CHUNK);
                if (n > 0)
                        out = in;
                if (n == 0)
                        return 0; /* it shrank: its time changed */
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0)
                        c->bytes += (uint64_t)n;
        }
        return 0;
}

static int copy_data(struct cop_capture *c, int from, int to, off_t size)
{
        off_t at = 0;

        if (size == 0 || ioctl(to, FICLONE, from) == 0)
                return 0;
        while (at < size) {
                off_t data = lseek(from, at, SEEK_DATA);
                if (data < 0 && errno == ENXIO)
                        break; /* a hole to the end */
                off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
                if (hole < 0) { /* not told by this filesystem */
                        data = at;
                        hole = size;
                }
                int r = copy_range(c, from, to, data, MIN_OF(hole, size));
                if (r < 0)
                        return r;
                at = hole;
        }
        return ftruncate(to, size) < 0 ? -errno : 0;
}

int cop_capture_copy_file(struct cop_capture *c, int upper_fd, int layer_fd, const char *name, struct stat *ret_source,
                          bool *ret_settled)
{
        _cleanup_close_ int from = openat(upper_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -EBADF;
        struct stat st;

        if (from < 0)
                return errno == ENOENT || errno == ELOOP || errno == ENXIO ? -ESTALE : -errno;
        sync_file_range(from, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE);
        if (fstat(from, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -ESTALE;
        if (c->patient && st.st_size >= PATIENT_SIZE && !cop_capture_settled(&st)) {
                usleep(COP_CAPTURE_TICK + 5000);
                if (fstat(from, &st) < 0)
                        return -errno;
        }
        struct cop_capture_note note = cop_capture_note_of(&st);
        bool settled = cop_capture_settled(&st);

        to = openat(layer_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
                return -errno;
        int r = copy_data(c, from, to, st.st_size);
        if (r == 0 && fchown(to, st.st_uid, st.st_gid) < 0)
                r = -errno;
        struct place a = place_of(from, NULL), b = place_of(to, NULL);
        if (r == 0)
                r = copy_attributes(&a, &b, false);
        if (r == 0 && settled && !c->plain && fsetxattr(to, NOTE, &note, sizeof(note), 0) < 0 && errno != ENOTSUP)
                r = -errno;
        const struct timespec times[2] = {st.st_atim, st.st_mtim};
        if (r == 0 && (fchmod(to, st.st_mode & 07777) < 0 || futimens(to, times) < 0))
                r = -errno;
        c->files++;
        *ret_source = st;
        *ret_settled = settled;
        return r;
}

static int finish_by_name(int upper_fd, int layer_fd, const char *name, const struct stat *st)
{
        const struct timespec times[2] = {st->st_atim, st->st_mtim};
        struct place a = place_of(upper_fd, name), b = place_of(layer_fd, name);

        if (fchownat(layer_fd, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        int r = copy_attributes(&a, &b, false);
        if (r < 0 && r != -ENOENT)
                return r;
        if (!S_ISLNK(st->st_mode) && fchmodat(layer_fd, name, st->st_mode & 07777, 0) < 0)
                return -errno;
        return utimensat(layer_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int cop_capture_copy_symlink(int upper_fd, int layer_fd, const char *name, const struct stat *st)
{
        char target[4097];
        ssize_t n = readlinkat(upper_fd, name, target, sizeof(target) - 1);

        if (n < 0)
                return errno == ENOENT || errno == EINVAL ? -ESTALE : -errno;
        target[n] = '\0';
        return symlinkat(target, layer_fd, name) < 0 ? -errno : finish_by_name(upper_fd, layer_fd, name, st);
}

int cop_capture_copy_special(int upper_fd, int layer_fd, const char *name, const struct stat *st)
{
        /* A device of the host: cannot be made from inside a user namespace. */
        if ((S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) && st->st_rdev != 0)
                return -ESTALE;
        return mknodat(layer_fd, name, st->st_mode, st->st_rdev) < 0 ? -errno
                                                                     : finish_by_name(upper_fd, layer_fd, name, st);
}
