/* What was in folders that exist in memory only (dump_kept.c): made again, before anything is opened.
 *
 * The caller has mounted them, and may have put something there, which gives way.  A socket is at first one that nobody has; who binds his to
 * that name replaces it (restore_bind.c). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/restore.h"

static int set_attributes(const struct cop_restore *r, const struct img_file *f)
{
        const char *path = cop_restore_string(r, &f->path);
        const struct timespec times[2] = {
                {(time_t)f->arg[IMG_ARG_ATIME], (long)f->arg[IMG_ARG_ATIME_NS]},
                {(time_t)f->arg[IMG_ARG_MTIME], (long)f->arg[IMG_ARG_MTIME_NS]},
        };
        mode_t mode = (mode_t)f->arg[1];

        if (lchown(path, (uid_t)f->arg[IMG_ARG_UID], (gid_t)f->arg[IMG_ARG_GID]) < 0 ||
            (!S_ISLNK(mode) && chmod(path, mode & 07777) < 0) ||
            utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        return 0;
}

static int make_file(struct cop_restore *r, const struct img_file *f, const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0 || ftruncate(fd, (off_t)f->arg[0]) < 0)
                return -errno;
        return cop_restore_file_pages(r, f, fd);
}

/* The record under whose name that file was made already, or IMG_NONE. */
static uint32_t find_first_name(const struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);

        for (uint32_t i = 0; f->link && i < index; i++)
                if (RESTORE_FILE(r, i)->kind == IMG_FILE_KEPT && RESTORE_FILE(r, i)->link == f->link)
                        return i;
        return IMG_NONE;
}

/* 0 or -errno; done: nothing has to be set any more. */
static int make(struct cop_restore *r, uint32_t index, bool *ret_done)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        const char *path = cop_restore_string(r, &f->path);
        uint32_t first = find_first_name(r, index);
        mode_t type = (mode_t)f->arg[1] & S_IFMT;
        struct stat st;

        *ret_done = first != IMG_NONE || type == S_IFDIR; /* folders later */
        if (type == S_IFDIR) {
                if (mkdir(path, 0700) == 0)
                        return 0;
                int saved = errno;
                return saved == EEXIST && lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : -saved;
        }
        if (unlink(path) < 0 && errno != ENOENT)
                return -errno;
        if (first != IMG_NONE)
                return link(cop_restore_string(r, &RESTORE_FILE(r, first)->path), path) < 0 ? -errno : 0;
        switch (type) {
        case S_IFREG:
                return make_file(r, f, path);
        case S_IFLNK:
                return symlink(cop_restore_string(r, &f->data), path) < 0 ? -errno : 0;
        case S_IFIFO:
        case S_IFSOCK:
                return mknod(path, type | 0600, 0) < 0 ? -errno : 0;
        default:
                return -EBADMSG;
        }
}

int cop_restore_kept(struct cop_restore *r, struct cop_error *err)
{
        uint32_t n = r->image->count[IMG_FILES], folders = 0;

        for (uint32_t i = 0; i < n; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                bool done;
                if (f->kind != IMG_FILE_KEPT)
                        continue;
                int ret = make(r, i, &done);
                if (ret == 0 && !done)
                        ret = set_attributes(r, f);
                if (ret < 0)
                        return cop_error_errno(err, -ret, "making %s again", cop_restore_string(r, &f->path));
                folders += S_ISDIR((mode_t)f->arg[1]);
        }
        /* When all is in them, since that changes their times and needs the right to write. */
        for (uint32_t i = n; i > 0 && folders > 0; i--) {
                const struct img_file *f = RESTORE_FILE(r, i - 1);
                if (f->kind != IMG_FILE_KEPT || !S_ISDIR((mode_t)f->arg[1]))
                        continue;
                int ret = set_attributes(r, f);
                if (ret < 0)
                        return cop_error_errno(err, -ret, "making %s again", cop_restore_string(r, &f->path));
                folders--;
        }
        return 0;
}
