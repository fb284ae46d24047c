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

static int make(struct cop_restore *r, uint32_t index)
{
        const struct img_file *f = RESTORE_FILE(r, index);
        const char *path = cop_restore_string(r, &f->path);
        uint32_t first = find_first_name(r, index);
        mode_t type = (mode_t)f->arg[1] & S_IFMT;
        struct stat st;

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

static bool is_folder(const struct img_file *f)
{
        return f->kind == IMG_FILE_KEPT && S_ISDIR((mode_t)f->arg[1]);
}

static int set_attributes(const struct cop_restore *r, const struct img_file *f)
{
        return cop_restore_attributes(AT_FDCWD, cop_restore_string(r, &f->path), f, (mode_t)f->arg[1]);
}

static int failed(const struct cop_restore *r, const struct img_file *f, int errnum, struct cop_error *err)
{
        return cop_error_errno(err, -errnum, "making %s again", cop_restore_string(r, &f->path));
}

int cop_restore_kept(struct cop_restore *r, struct cop_error *err)
{
        uint32_t n = r->image->count[IMG_FILES];

        for (uint32_t i = 0; i < n; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                int ret = f->kind == IMG_FILE_KEPT ? make(r, i) : 0;
                if (ret == 0 && f->kind == IMG_FILE_KEPT && !is_folder(f))
                        ret = set_attributes(r, f);
                if (ret < 0)
                        return failed(r, f, ret, err);
        }
        /* When all is in them, since that changes their times and needs the right to write. */
        for (uint32_t i = n; i > 0; i--) {
                const struct img_file *f = RESTORE_FILE(r, i - 1);
                int ret = is_folder(f) ? set_attributes(r, f) : 0;
                if (ret < 0)
                        return failed(r, f, ret, err);
        }
        return 0;
}
