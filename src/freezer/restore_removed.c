/* Files, FIFOs, folders and symbolic links that are open and have no name: each is made again under one that is taken from it at once.
 *
 * It is the old one, which the kernel tells to who asks what is open, unless another file has that by now.  Their own folder may be
 * gone as well; they are made in /tmp then.  Nothing can be made in a folder without a name, so it is empty.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "freezer/restore.h"

#define NAME_SIZE 4200

int cop_restore_attributes(int fd, const char *name, const struct img_file *f, mode_t mode)
{
        const struct timespec times[2] = {
                {(time_t)f->arg[IMG_ARG_ATIME], (long)f->arg[IMG_ARG_ATIME_NS]},
                {(time_t)f->arg[IMG_ARG_MTIME], (long)f->arg[IMG_ARG_MTIME_NS]},
        };

        const int at = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;

        if (fchownat(fd, name, (uid_t)f->arg[IMG_ARG_UID], (gid_t)f->arg[IMG_ARG_GID], at) < 0)
                return -errno;
        if (!S_ISLNK(mode) && (name[0] ? fchmodat(fd, name, mode & 07777, 0) : fchmod(fd, mode & 07777)) < 0)
                return -errno;
        if (utimensat(fd, name, times, at) < 0)
                return -errno;
        return 0;
}

/* A file that never had a name (O_TMPFILE) may still get one, unlike one that has lost its name.  The kernel calls it #NUMBER. */
static int open_nameless(const char *path)
{
        const char *name = strrchr(path, '/');
        char folder[NAME_SIZE];

        if (!name || name[1] != '#' || name[2] == '\0' || name[2 + strspn(name + 2, "0123456789")])
                return -1;
        snprintf(folder, sizeof(folder), "%.*s/", (int)MIN_OF(name - path, 4096L), path);
        return open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Makes what f is, but for its contents and attributes. */
static int make(const struct cop_restore *r, const struct img_file *f, const char *name)
{
        if (f->kind == IMG_FILE_REGULAR)
                return open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (f->kind == IMG_FILE_FIFO)
                return mkfifo(name, 0600) < 0 ? -1 : open(name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (S_ISLNK(f->arg[1]))
                return symlink(cop_restore_string(r, &f->data), name) < 0 ? -1
                                                                          : open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        return mkdir(name, 0700) < 0 ? -1 : open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int make_nameless(const struct cop_restore *r, const struct img_file *f)
{
        const char *path = cop_restore_string(r, &f->path);
        char name[NAME_SIZE], random[17];
        int fd = f->kind == IMG_FILE_REGULAR ? open_nameless(path) : -1;

        if (fd >= 0)
                return fd;
        cop_id_hex(random, 8);
        for (int i = 0; fd < 0 && i < 3; i++) {
                if (i < 2)
                        snprintf(name, sizeof(name), "%.4096s%s%s", path, i ? "." : "", i ? random : "");
                else
                        snprintf(name, sizeof(name), "/tmp/.%s", random);
                fd = make(r, f, name);
        }
        if (fd < 0)
                return -errno;
        if (unlink(name) < 0)
                rmdir(name);
        return fd;
}

int cop_restore_without_name(struct cop_restore *r, const struct img_file *f)
{
        _cleanup_close_ int fd = make_nameless(r, f);
        int ret = fd < 0 ? fd : 0;

        if (ret == 0 && f->kind == IMG_FILE_REGULAR)
                ret = ftruncate(fd, (off_t)f->arg[0]) < 0 ? -errno : cop_restore_file_pages(r, f, fd);
        if (ret == 0)
                ret = cop_restore_attributes(fd, "", f, (mode_t)f->arg[1]);
        return ret < 0 ? ret : TAKE_FD(fd);
}

/* A link cannot be opened through /proc with O_NOFOLLOW, nor has its description anything that sharing it would show. */
static int open_again(const struct img_file *f, int fd)
{
        char path[32];

        if (f->kind == IMG_FILE_REGULAR)
                return cop_restore_reopen(fd, (int)f->flags);
        snprintf(path, sizeof(path), "/proc/self/fd/%d/.", fd);
        int again = S_ISLNK(f->arg[1]) ? fcntl(fd, F_DUPFD_CLOEXEC, 0)
                                       : open(path, ((int)f->flags & COP_FLAGS_OPEN) | O_CLOEXEC);
        return again < 0 ? -errno : again;
}

int cop_restore_removed(struct cop_restore *r, uint32_t index, struct cop_error *err)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        const char *path = cop_restore_string(r, &f->path);
        int other = cop_restore_sibling(r, index);

        if (other >= 0) {
                int again = open_again(f, other);
                return again < 0 ? cop_error_errno(err, -again, "opening the removed %s", path) : again;
        }
        _cleanup_close_ int fd = cop_restore_without_name(r, f);
        int ret = fd < 0 ? fd : open_again(f, fd);
        return ret < 0 ? cop_error_errno(err, -ret, "making the removed %s again", path) : ret;
}
