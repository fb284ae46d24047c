/* Theory of operation
 *
 * Packing walks the tree with descriptors, folder by folder.  Unpacking takes entries in the archive's order; each path is
 * opened beneath the target with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so that neither a link in the archive nor one
 * that stood there before leads out.  A file replaces what has its name by unlink and O_EXCL, never by writing through it.
 */
#include "archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/tar.h"

#define CHUNK 65536
#define DEPTH_MAX 200
#define PERMISSIONS 0777

/* -- packing -------------------------------------------------------------------------------------------------------- */

struct packing {
        int out_fd;
        size_t prefix_len; /* of names, with its slash */
        char *chunk;       /* CHUNK bytes */
        struct cop_error *err;
};

static int put(struct packing *p, const void *data, size_t n)
{
        int r = cop_write_all(p->out_fd, data, n);

        return r < 0 ? cop_error_errno(p->err, r, "sending the archive") : 0;
}

static int put_header(struct packing *p, const struct cop_tar_entry *entry)
{
        _cleanup_buf_ struct cop_buf header = COP_BUF((size_t)6 * COP_TAR_PAX_MAX);
        int r = cop_tar_add_header(&header, entry);

        return r < 0 ? cop_error_errno(p->err, r, "archiving %.300s", entry->name) : put(p, header.data, header.len);
}

/* The size is in the header already: a file that shrinks meanwhile is filled up, one that grows is cut. */
static int pack_file(struct packing *p, int dir_fd, const char *last, const struct cop_tar_entry *entry)
{
        _cleanup_close_ int fd = openat(dir_fd, last, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        static const char zeros[COP_TAR_BLOCK];
        uint64_t left = entry->size;

        if (fd < 0)
                return cop_error_errno(p->err, errno, "reading %.300s", entry->name);
        int r = put_header(p, entry);
        while (r == 0 && left > 0) {
                size_t want = MIN_OF(left, (uint64_t)CHUNK);
                ssize_t n = read(fd, p->chunk, want);
                if (n < 0)
                        return cop_error_errno(p->err, errno, "reading %.300s", entry->name);
                if (n == 0) {
                        memset(p->chunk, 0, want);
                        n = (ssize_t)want;
                }
                r = put(p, p->chunk, (size_t)n);
                left -= (uint64_t)n;
        }
        return r < 0 ? r : put(p, zeros, cop_tar_padding(entry->size));
}

static int pack_folder(struct packing *p, int fd, const char *prefix, int depth);

static int pack_entry(struct packing *p, int dir_fd, const char *last, const char *name, int depth)
{
        char target[COP_TAR_NAME_MAX + 1];
        struct stat st;

        if (fstatat(dir_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : cop_error_errno(p->err, errno, "reading %.300s", name);
        struct cop_tar_entry entry = {
                .name = name, .mode = st.st_mode & 07777, .mtime = MAX_OF(st.st_mtime, (time_t)0)};
        if (S_ISDIR(st.st_mode)) {
                entry.type = COP_TAR_FOLDER;
                int r = put_header(p, &entry);
                _cleanup_close_ int fd =
                        r < 0 ? -EBADF : openat(dir_fd, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (r == 0 && fd < 0)
                        return cop_error_errno(p->err, errno, "reading %.300s", name);
                return r < 0 ? r : pack_folder(p, fd, name, depth + 1);
        }
        if (S_ISLNK(st.st_mode)) {
                ssize_t n = readlinkat(dir_fd, last, target, sizeof(target) - 1);
                if (n <= 0)
                        return cop_error_errno(p->err, errno, "reading the link %.300s", name);
                target[n] = '\0';
                if (!cop_tar_link_stays(name + p->prefix_len, target)) {
                        fprintf(stderr, "coppice: left out %s: a link to %s, outside the copied folder\n", name,
                                target);
                        return 0;
                }
                entry.type = COP_TAR_SYMLINK;
                entry.target = target;
                return put_header(p, &entry);
        }
        if (!S_ISREG(st.st_mode))
                return 0;
        entry.type = COP_TAR_FILE;
        entry.size = (uint64_t)st.st_size;
        return pack_file(p, dir_fd, last, &entry);
}

static int pack_folder(struct packing *p, int fd, const char *prefix, int depth)
{
        struct dirent **entries = NULL;
        int r = 0;

        if (depth > DEPTH_MAX)
                return cop_error_set(p->err, ELOOP, COP_ERR_bad_request, "%.300s is nested deeper than %d folders",
                                     prefix, DEPTH_MAX);
        int n = scandirat(fd, ".", &entries, NULL, alphasort);
        if (n < 0)
                return cop_error_errno(p->err, errno, "reading %.300s", prefix);
        for (int i = 0; i < n; i++) {
                const char *last = entries[i]->d_name;
                char name[COP_TAR_NAME_MAX + 1];
                if (r == 0 && strcmp(last, ".") != 0 && strcmp(last, "..") != 0) {
                        r = cop_path_format(name, sizeof(name), "%s%s%s", prefix, *prefix ? "/" : "", last);
                        r = r < 0 ? cop_error_errno(p->err, r, "%.300s", prefix) : pack_entry(p, fd, last, name, depth);
                }
                free(entries[i]);
        }
        free(entries);
        return r;
}

int cop_pack(const char *path, const char *prefix, int fd, struct cop_error *err)
{
        _cleanup_free_ char *chunk = malloc(CHUNK);
        _cleanup_close_ int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        static const char end[2 * COP_TAR_BLOCK];
        struct packing p = {.out_fd = fd, .prefix_len = *prefix ? strlen(prefix) + 1 : 0, .chunk = chunk, .err = err};

        if (!chunk)
                return cop_error_errno(err, ENOMEM, "archiving %s", path);
        if (dir_fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        int r = pack_folder(&p, dir_fd, prefix, 0);
        return r < 0 ? r : put(&p, end, sizeof(end));
}

/* -- unpacking ------------------------------------------------------------------------------------------------------ */

struct unpacking {
        struct cop_tar_reader *reader; /* borrowed */
        int root_fd;
        bool strip;
        char *chunk; /* CHUNK bytes */
        struct cop_error *err;
};

/* A clean name without its first component when that is to be stripped; NULL when nothing is left. */
static char *member_path(char *clean, bool strip)
{
        char *slash = strip ? strchr(clean, '/') : NULL;

        return !strip ? clean : slash ? slash + 1 : NULL;
}

static ssize_t read_archive(void *userdata, void *buf, size_t n, struct cop_error *err)
{
        ssize_t got;

        do
                got = read(*(int *)userdata, buf, n);
        while (got < 0 && errno == EINTR);
        return got < 0 ? cop_error_errno(err, errno, "receiving the archive") : got;
}

/* mkdir -p beneath the root.  Only an entry of the archive that comes later gives a folder another mode. */
static int make_folders(struct unpacking *u, char *path)
{
        for (char *slash = path;; slash++) {
                slash = strchr(slash, '/');
                if (slash)
                        *slash = '\0';
                if (mkdirat(u->root_fd, path, PERMISSIONS) < 0 && errno != EEXIST)
                        return cop_error_errno(u->err, errno, "creating %.300s", path);
                /* Made or there before: it must be a folder reached without a link, or the next mkdirat would follow one. */
                int fd = cop_open_beneath(u->root_fd, path, O_PATH | O_DIRECTORY, 0, 1, u->err);
                if (fd < 0)
                        return fd;
                cop_close(fd);
                if (!slash)
                        return 0;
                *slash = '/';
        }
}

static int unpack_file(struct unpacking *u, int dir_fd, const char *last, const struct cop_tar_entry *entry)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = (time_t)entry->mtime}};
        _cleanup_close_ int fd =
                openat(dir_fd, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, entry->mode & PERMISSIONS);
        ssize_t n;

        if (fd < 0)
                return cop_error_errno(u->err, errno, "creating %.300s", entry->name);
        while ((n = cop_tar_data(u->reader, u->chunk, CHUNK, u->err)) > 0) {
                int r = cop_write_all(fd, u->chunk, (size_t)n);
                if (r < 0)
                        return cop_error_errno(u->err, r, "writing %.300s", entry->name);
        }
        futimens(fd, times);
        return (int)n;
}

static int unpack_symlink(struct unpacking *u, int dir_fd, const char *last, const char *name, const char *target)
{
        if (!cop_tar_link_stays(name, target)) {
                fprintf(stderr, "coppice: left out %s: a link to %s, outside the copied folder\n", name, target);
                return 0;
        }
        return symlinkat(target, dir_fd, last) < 0 ? cop_error_errno(u->err, errno, "creating the link %.300s", name)
                                                   : 0;
}

static int unpack_hardlink(struct unpacking *u, int dir_fd, const char *last, const char *name, const char *target)
{
        char clean[COP_TAR_NAME_MAX + 1], proc[64];
        const char *path = cop_tar_clean_name(target, clean) == 1 ? member_path(clean, u->strip) : NULL;

        if (!path)
                return cop_error_set(u->err, EINVAL, COP_ERR_bad_request, "%.300s is a hard link to %.300s", name,
                                     target);
        _cleanup_close_ int fd = cop_open_beneath(u->root_fd, path, O_PATH | O_NOFOLLOW, 0, 1, u->err);
        if (fd < 0)
                return fd;
        snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
        return linkat(AT_FDCWD, proc, dir_fd, last, AT_SYMLINK_FOLLOW) < 0
                       ? cop_error_errno(u->err, errno, "linking %.300s", name)
                       : 0;
}

static int unpack_member(struct unpacking *u, int dir_fd, const char *last, const char *name,
                         const struct cop_tar_entry *entry)
{
        if (unlinkat(dir_fd, last, 0) < 0 && errno != ENOENT)
                return cop_error_errno(u->err, errno, "replacing %.300s", name);
        if (entry->type == COP_TAR_FILE)
                return unpack_file(u, dir_fd, last, entry);
        if (entry->type == COP_TAR_SYMLINK)
                return unpack_symlink(u, dir_fd, last, name, entry->target);
        return unpack_hardlink(u, dir_fd, last, name, entry->target);
}

static int unpack_entry(struct unpacking *u, const struct cop_tar_entry *entry)
{
        char clean[COP_TAR_NAME_MAX + 1];
        int r = cop_tar_clean_name(entry->name, clean);
        char *name = r == 1 ? member_path(clean, u->strip) : NULL;

        if (r < 0)
                return cop_error_set(u->err, EINVAL, COP_ERR_bad_request,
                                     "the archive has a member with the name %.300s", entry->name);
        if (!name)
                return 0; /* the folder itself */
        if (entry->type == COP_TAR_FOLDER)
                return make_folders(u, name);
        char *slash = strrchr(name, '/');
        if (slash) {
                *slash = '\0';
                if ((r = make_folders(u, name)) < 0)
                        return r;
        }
        _cleanup_close_ int dir_fd =
                cop_open_beneath(u->root_fd, slash ? name : ".", O_RDONLY | O_DIRECTORY, 0, 1, u->err);
        if (dir_fd < 0)
                return dir_fd;
        if (slash)
                *slash = '/';
        return unpack_member(u, dir_fd, slash ? slash + 1 : name, name, entry);
}

int cop_unpack(int fd, const char *folder, bool strip, struct cop_error *err)
{
        _cleanup_(cop_tar_reader_freep) struct cop_tar_reader *reader = NULL;
        _cleanup_free_ char *chunk = malloc(CHUNK);
        struct cop_tar_entry entry;
        int r;

        if (!chunk)
                return cop_error_errno(err, ENOMEM, "extracting into %s", folder);
        if ((r = cop_mkdir_p(folder, PERMISSIONS, err)) < 0 ||
            (r = cop_tar_reader_new(read_archive, &fd, &reader, err)) < 0)
                return r;
        _cleanup_close_ int root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root_fd < 0)
                return cop_error_errno(err, errno, "opening %s", folder);
        struct unpacking u = {.reader = reader, .root_fd = root_fd, .strip = strip, .chunk = chunk, .err = err};
        while ((r = cop_tar_next(reader, &entry, err)) == 1)
                if ((r = unpack_entry(&u, &entry)) < 0)
                        return r;
        return r;
}
