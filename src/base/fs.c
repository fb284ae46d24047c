#include "fs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "id.h"

int cop_open_beneath(int root_fd, const char *path, int flags, mode_t mode, int nofollow, struct cop_error *err)
{
        bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; /* O_TMPFILE contains O_DIRECTORY */
        struct open_how how = {
                .flags = (uint64_t)(flags | O_CLOEXEC),
                .mode = creates ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (nofollow ? RESOLVE_NO_SYMLINKS : 0),
        };
        int fd, tries = 0;

        do /* EAGAIN: a rename raced with a .. in the path.  Who owns the tree may go on renaming for ever. */
                fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        while (fd < 0 && (errno == EINTR || (errno == EAGAIN && tries++ < 100)));
        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        return fd;
}

int cop_read_file(int at_fd, const char *path, size_t max, char **ret_text, size_t *ret_len, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf buf = COP_BUF(max + 1);
        _cleanup_close_ int fd = openat(at_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n;

        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        do
                n = cop_buf_read(&buf, fd, MIN_OF(max + 1, (size_t)65536));
        while (n > 0 || n == -EINTR);
        if (n == -EMSGSIZE || (n == 0 && buf.len > max))
                return cop_error_set(err, EFBIG, COP_ERR_io_error, "%s is longer than %zu bytes", path, max);
        if (n < 0)
                return cop_error_errno(err, (int)-n, "reading %s", path);
        size_t len = buf.len;
        char *text = cop_buf_take(&buf);
        if (!text)
                return cop_error_errno(err, ENOMEM, "reading %s", path);
        *ret_text = text;
        if (ret_len)
                *ret_len = len;
        return 0;
}

int cop_read_word(int at_fd, const char *path, char **ret_text, struct cop_error *err)
{
        size_t len = 0;
        int r = cop_read_file(at_fd, path, 4096, ret_text, &len, err);

        if (r < 0)
                return r;
        while (len > 0 && isspace((unsigned char)(*ret_text)[len - 1]))
                (*ret_text)[--len] = '\0';
        return 0;
}

int cop_write_kernel_file(int at_fd, const char *path, const char *text, struct cop_error *err)
{
        _cleanup_close_ int fd = openat(at_fd, path, O_WRONLY | O_CLOEXEC);
        size_t n = strlen(text);

        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (write(fd, text, n) != (ssize_t)n)
                return cop_error_errno(err, errno, "writing \"%.40s\" to %s", text, path);
        return 0;
}

int cop_write_all(int fd, const void *data, size_t n)
{
        const char *p = data;

        while (n > 0) {
                ssize_t done = write(fd, p, n);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0)
                        return -errno;
                p += done;
                n -= (size_t)done;
        }
        return 0;
}

static int sync_parent(int at_fd, const char *path)
{
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
        _cleanup_close_ int fd = parent ? openat(at_fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

        if (fd < 0)
                return -errno;
        return fsync(fd) < 0 ? -errno : 0;
}

static int write_file(int at_fd, const char *path, const void *data, size_t n, mode_t mode, bool sync,
                      struct cop_error *err)
{
        _cleanup_free_ char *temp = NULL;
        char random[17];

        if (asprintf(&temp, "%s.%s.tmp", path, cop_id_hex(random, 8)) < 0)
                return cop_error_errno(err, ENOMEM, "writing %s", path);
        _cleanup_close_ int fd = openat(at_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return cop_error_errno(err, errno, "creating %s", temp);
        int r = cop_write_all(fd, data, n);
        if (r == 0 && (fchmod(fd, mode) < 0 || (sync && fsync(fd) < 0) || renameat(at_fd, temp, at_fd, path) < 0))
                r = -errno;
        if (r < 0) {
                unlinkat(at_fd, temp, 0);
                return cop_error_errno(err, r, "writing %s", path);
        }
        r = sync ? sync_parent(at_fd, path) : 0;
        return r < 0 ? cop_error_errno(err, r, "syncing the folder of %s", path) : 0;
}

int cop_write_file_atomic(int at_fd, const char *path, const void *data, size_t n, mode_t mode, struct cop_error *err)
{
        return write_file(at_fd, path, data, n, mode, true, err);
}

int cop_write_file_unsynced(int at_fd, const char *path, const void *data, size_t n, mode_t mode, struct cop_error *err)
{
        return write_file(at_fd, path, data, n, mode, false, err);
}

void cop_spread_subfolders(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int flags = 0;

        if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
                flags |= FS_TOPDIR_FL;
                (void)!ioctl(fd, FS_IOC_SETFLAGS, &flags);
        }
}

int cop_mkdir_p(const char *path, mode_t mode, struct cop_error *err)
{
        _cleanup_free_ char *copy = strdup(path);
        struct stat st;

        if (!copy)
                return cop_error_errno(err, ENOMEM, "creating %s", path);
        if (!*path)
                return cop_error_errno(err, ENOENT, "creating a folder without a name");
        for (char *p = copy + 1;; p++) {
                if (*p != '/' && *p != '\0')
                        continue;
                char saved = *p;
                *p = '\0';
                if (mkdir(copy, mode) < 0 && errno != EEXIST)
                        return cop_error_errno(err, errno, "creating %s", copy);
                *p = saved;
                if (!saved)
                        break;
        }
        if (stat(path, &st) < 0)
                return cop_error_errno(err, errno, "creating %s", path);
        if (!S_ISDIR(st.st_mode))
                return cop_error_errno(err, ENOTDIR, "creating %s", path);
        return 0;
}

/* Removing a tree.  Recursion goes REMOVE_DEPTH folders down, two descriptors each; what lies deeper is renamed into the
 * top folder and dealt with in the next pass, so neither stack nor descriptors grow with the depth of a hostile tree, and
 * every entry is moved at most once per REMOVE_DEPTH levels. */
#define REMOVE_DEPTH 64

struct removal {
        int top_fd; /* borrowed */
        dev_t dev;
        bool moved; /* something new lies in the top folder */
};

static int move_to_top(struct removal *rm, int dir_fd, const char *name)
{
        char fresh[40] = ".removing-";

        cop_id_hex(fresh + strlen(fresh), 12); /* random: no name that was planted can stand in the way */
        if (renameat(dir_fd, name, rm->top_fd, fresh) < 0)
                return -errno;
        rm->moved = true;
        return 0;
}

static int empty_folder(struct removal *rm, int dir_fd, int depth);

static int remove_folder(struct removal *rm, int dir_fd, const char *name, int depth)
{
        struct stat st;

        if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
                return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
                return -errno;
        _cleanup_close_ int sub = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0 || fstat(sub, &st) < 0)
                return -errno;
        if (st.st_dev != rm->dev)
                return -EXDEV;
        if (depth >= REMOVE_DEPTH)
                return move_to_top(rm, dir_fd, name);
        int r = empty_folder(rm, sub, depth + 1);
        if (r < 0)
                return r;
        return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Empties the folder dir_fd (borrowed). */
static int empty_folder(struct removal *rm, int dir_fd, int depth)
{
        _cleanup_closedir_ DIR *dir = NULL;
        struct dirent *entry;
        int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (copy < 0)
                return -errno;
        dir = fdopendir(copy);
        if (!dir) {
                cop_close(copy);
                return -errno;
        }
        while ((errno = 0, entry = readdir(dir))) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (unlinkat(dir_fd, entry->d_name, 0) == 0 || errno == ENOENT)
                        continue;
                if (errno != EISDIR && errno != EPERM)
                        return -errno;
                int r = remove_folder(rm, dir_fd, entry->d_name, depth);
                if (r < 0)
                        return r;
        }
        return -errno;
}

int cop_remove_tree(int at_fd, const char *path, struct cop_error *err)
{
        struct stat st;

        if (unlinkat(at_fd, path, 0) == 0 || errno == ENOENT)
                return 0;
        _cleanup_close_ int fd = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "removing %s", path);
        struct removal rm = {.top_fd = fd, .dev = st.st_dev};
        int r;
        do {
                rm.moved = false;
                r = empty_folder(&rm, fd, 0);
        } while (r == 0 && rm.moved);
        if (r == 0 && unlinkat(at_fd, path, AT_REMOVEDIR) < 0)
                r = -errno;
        return r < 0 ? cop_error_errno(err, r, "removing %s", path) : 0;
}

int cop_path_format(char *buf, size_t n, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        int used = vsnprintf(buf, n, format, ap);
        va_end(ap);
        return used < 0 || (size_t)used >= n ? -ENAMETOOLONG : 0;
}

static int change_flags(int fd, int get, int set, int flag, int on)
{
        int flags = fcntl(fd, get);

        if (flags < 0)
                return -errno;
        int wanted = on ? flags | flag : flags & ~flag;
        return wanted == flags || fcntl(fd, set, wanted) == 0 ? 0 : -errno;
}

int cop_set_cloexec(int fd, int on)
{
        return change_flags(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int cop_set_nonblock(int fd, int on)
{
        return change_flags(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

const char *cop_file_type_name(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFREG:
                return "file";
        case S_IFDIR:
                return "directory";
        case S_IFLNK:
                return "symlink";
        case S_IFIFO:
                return "fifo";
        case S_IFSOCK:
                return "socket";
        default:
                return "device";
        }
}
