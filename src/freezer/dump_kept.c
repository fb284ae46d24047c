/* What is in folders that exist in memory only (tmpfs), as /dev/shm and /run of a sandbox: the thaw finds them empty.
 *
 * Theory of operation.  The tree stands still, so they are read as they are, below the root of its first process and without
 * following a link.  Each file, folder, link, FIFO and socket becomes a record (IMG_FILE_KEPT), folders before what is in them; a file with
 * several names has its content once.  That a file was not written to since the parent image nothing tells (a write through a mapping
 * leaves no time behind), so its content is compared with what the parent has, and only what is new is written.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"

#define ENTRIES_MAX 16384U /* in all folders */
#define DEPTH_MAX 64U      /* each level is a descriptor */

struct walk {
        struct cop_dump *d;
        char path[4096]; /* of what is looked at, as the tree sees it */
        dev_t dev;       /* of the folder's file system: others are mounts, which the caller of the thaw makes */
        uint32_t entries;
        struct old {
                const char *path;
                const struct img_file *file;
        } * old; /* owned: what the parent image has, by path */
        size_t old_count;
};

static int refuse(const struct walk *w, struct cop_error *err, const char *why, unsigned most)
{
        return cop_error_set(err, EOPNOTSUPP, COP_ERR_not_freezable,
                             "%.400s %s (%u at most in memory): cannot be frozen", w->path, why, most);
}

static int compare_paths(const void *a, const void *b)
{
        return strcmp(((const struct old *)a)->path, ((const struct old *)b)->path);
}

static int collect_old(struct walk *w, struct cop_error *err)
{
        const struct cop_image *im = w->d->parent;
        uint32_t n = im ? im->count[IMG_FILES] : 0;

        w->old = calloc(n + 1, sizeof(*w->old));
        if (!w->old)
                return cop_error_errno(err, ENOMEM, "freezing");
        for (uint32_t i = 0; i < n; i++) {
                const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, i);
                if (f->kind == IMG_FILE_KEPT)
                        w->old[w->old_count++] = (struct old){cop_image_at(im, &f->path), f};
        }
        qsort(w->old, w->old_count, sizeof(*w->old), compare_paths);
        return 0;
}

/* What the parent image has under this name, or NULL. */
static const struct img_file *find_old(const struct walk *w)
{
        const struct old *old =
                bsearch(&(struct old){.path = w->path}, w->old, w->old_count, sizeof(*w->old), compare_paths);

        return old ? old->file : NULL;
}

static int add_content(struct walk *w, int folder_fd, const char *name, struct img_file *f, struct cop_error *err)
{
        _cleanup_close_ int fd = cop_dump_open_reader(folder_fd, name);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "opening %s", w->path);
        if (st.st_dev != f->dev || st.st_ino != f->ino)
                return cop_error_errno(err, EBUSY, "opening %s: it was replaced", w->path);
        return cop_dump_object_pages(w->d, fd, find_old(w), f, err);
}

/* Adds a record; of a file that was met under another name only this name. */
static int add(struct walk *w, int folder_fd, const char *name, const struct stat *st, struct cop_error *err)
{
        struct img_file f = {.kind = IMG_FILE_KEPT, .dev = st->st_dev, .ino = st->st_ino};
        bool first = true;
        int r = 0;

        f.arg[0] = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
        f.arg[1] = st->st_mode;
        f.arg[2] = st->st_nlink;
        cop_dump_attributes(w->d, &f, st);
        if (!S_ISDIR(st->st_mode) && st->st_nlink > 1)
                f.link = cop_dump_link(w->d, st->st_dev, st->st_ino, &first);
        if (S_ISLNK(st->st_mode))
                r = cop_dump_link_target(w->d, folder_fd, name, &f, err);
        else if (S_ISREG(st->st_mode) && first)
                r = add_content(w, folder_fd, name, &f, err);
        if (r < 0)
                return r;
        f.path = cop_image_puts(w->d->writer, w->path);
        cop_image_add(w->d->writer, IMG_FILES, &f);
        return 0;
}

static int walk_folder(struct walk *w, int fd, unsigned depth, struct cop_error *err);

static int walk_entry(struct walk *w, int folder_fd, const char *name, unsigned depth, struct cop_error *err)
{
        size_t length = strlen(w->path);
        struct stat st = {0};
        int r = 0;

        if ((size_t)snprintf(w->path + length, sizeof(w->path) - length, "/%s", name) >= sizeof(w->path) - length)
                return refuse(w, err, "has a path that is too long", sizeof(w->path) - 1);
        if (++w->entries > ENTRIES_MAX)
                r = refuse(w, err, "is one of too many files", ENTRIES_MAX);
        else if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                r = cop_error_errno(err, errno, "looking at %s", w->path);
        else if (st.st_dev == w->dev && !S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
                r = add(w, folder_fd, name, &st, err);
        if (r == 0 && S_ISDIR(st.st_mode) && st.st_dev == w->dev) {
                int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                r = fd < 0 ? cop_error_errno(err, errno, "opening %s", w->path) : walk_folder(w, fd, depth + 1, err);
        }
        w->path[length] = '\0';
        return r;
}

/* fd is taken over. */
static int walk_folder(struct walk *w, int fd, unsigned depth, struct cop_error *err)
{
        _cleanup_closedir_ DIR *dir = fdopendir(fd);
        int r = 0;

        if (!dir) {
                r = cop_error_errno(err, errno, "reading %s", w->path);
                cop_close(fd);
                return r;
        }
        if (depth > DEPTH_MAX)
                return refuse(w, err, "has folders too deep in each other", DEPTH_MAX);
        while (r == 0) {
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (!entry)
                        return errno ? cop_error_errno(err, errno, "reading %s", w->path) : 0;
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        r = walk_entry(w, fd, entry->d_name, depth, err);
        }
        return r;
}

int cop_dump_kept_folders(struct cop_dump *d, struct cop_error *err)
{
        const char *const *folder = d->request->kept_folders;

        if (!folder)
                return 0;
        _cleanup_close_ int root_fd = openat(d->tree.procs[0].dir_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root_fd < 0)
                return cop_error_errno(err, errno, "opening the root of the tree");
        struct walk w = {.d = d};
        int r = collect_old(&w, err);
        for (; *folder && r == 0; folder++) {
                _cleanup_close_ int fd = cop_open_beneath(root_fd, *folder + 1, O_RDONLY | O_DIRECTORY, 0, false, NULL);
                struct statfs fs;
                struct stat st;
                if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &st) < 0)
                        continue; /* then it is the caller's to save, with all other files */
                snprintf(w.path, sizeof(w.path), "%s", *folder);
                w.dev = st.st_dev;
                r = add(&w, fd, ".", &st, err);
                if (r == 0)
                        r = walk_folder(&w, TAKE_FD(fd), 0, err);
        }
        free(w.old);
        return r;
}
