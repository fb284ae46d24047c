/* Open files that have a path, or had one: regular files, folders, symbolic links, memory files.
 *
 * A path leads to the file for the tree's first process, which opens it again at the thaw.  What has no path any more is in the image
 * with all that belongs to it, and its link: all descriptions of it, and its mappings, are of one file again.
 */
#include "freezer/dump_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"

bool cop_dump_cut_deleted(char *link)
{
        size_t n = strlen(link);
        bool deleted = n > 10 && strcmp(link + n - 10, " (deleted)") == 0;

        if (deleted)
                link[n - 10] = '\0';
        return deleted;
}

void cop_dump_attributes(const struct cop_dump *d, struct img_file *f, const struct stat *st)
{
        f->arg[IMG_ARG_UID] = cop_dump_uid(d, st->st_uid);
        f->arg[IMG_ARG_GID] = cop_dump_gid(d, st->st_gid);
        f->arg[IMG_ARG_ATIME] = (uint64_t)st->st_atim.tv_sec;
        f->arg[IMG_ARG_ATIME_NS] = (uint64_t)st->st_atim.tv_nsec;
        f->arg[IMG_ARG_MTIME] = (uint64_t)st->st_mtim.tv_sec;
        f->arg[IMG_ARG_MTIME_NS] = (uint64_t)st->st_mtim.tv_nsec;
}

/* An overlay tells of what it has removed from a lower layer how many names it has there. */
int cop_dump_settle_name(struct cop_dump *d, const struct cop_dump_file *known, struct cop_fd_info *fi,
                         struct cop_error *err)
{
        if (fi->st.st_nlink > 0 && cop_dump_leads_to(d, fi->link, &fi->st))
                return 0;
        bool gone = cop_dump_cut_deleted(fi->link);
        if (gone && (fi->st.st_nlink == 0 || S_ISDIR(fi->st.st_mode))) {
                fi->st.st_nlink = 0;
                return 0;
        }
        int r = gone ? cop_dump_other_name(d, &fi->st, fi->link, sizeof(fi->link)) : -ENOENT;
        if (gone && r == -ENOENT && fi->fs_type == OVERLAYFS_SUPER_MAGIC) {
                fi->st.st_nlink = 0;
                return 0;
        }
        return r == 0 ? 0
                      : cop_not_freezable(
                                d, known->proc, err, "holds %.100s (fd %d), %s", fi->link, known->fd,
                                gone ? "whose name was removed while another one is not found"
                                     : "which its path does not lead to: a mount hides it, or has been removed");
}

int cop_dump_open_reader(int dir_fd, const char *path)
{
        int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC, fd = openat(dir_fd, path, flags | O_NOATIME);

        return fd < 0 && errno == EPERM ? openat(dir_fd, path, flags) : fd;
}

/* A description of our own: looking for holes moves the position. */
static int open_reader(int fd)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return cop_dump_open_reader(AT_FDCWD, path);
}

/* What is in it, once for all descriptions. */
static int dump_content(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f,
                        const struct cop_fd_info *fi, const char *kind, struct cop_error *err)
{
        int fd = cop_dump_duplicate(d, known, err);

        if (fd < 0)
                return fd;
        _cleanup_close_ int reader = open_reader(fd);
        if (reader < 0)
                return cop_error_errno(err, errno, "opening the %s %s", kind, fi->link);
        return cop_dump_object_pages(d, reader, NULL, f, err);
}

int cop_dump_memfd(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                   struct cop_error *err)
{
        bool first;

        cop_dump_cut_deleted(fi->link);
        f->kind = IMG_FILE_MEMFD;
        f->path = cop_image_puts(d->writer, fi->link + strlen("/memfd:"));
        f->link = cop_dump_link(d, known->dev, known->ino, &first);
        int fd = cop_dump_duplicate(d, known, err);
        if (fd < 0)
                return fd;
        f->arg[0] = (uint64_t)fi->st.st_size;
        f->arg[1] = (uint64_t)fcntl(fd, F_GET_SEALS);
        f->arg[2] = fi->st.st_mode;
        cop_dump_attributes(d, f, &fi->st);
        return first ? dump_content(d, known, f, fi, "memfd", err) : 0;
}

int cop_dump_regular(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                     struct cop_error *err)
{
        bool first;
        int r = cop_dump_settle_name(d, known, fi, err);

        if (r < 0)
                return r;
        f->kind = IMG_FILE_REGULAR;
        f->arg[0] = (uint64_t)fi->st.st_size;
        f->arg[1] = fi->st.st_mode;
        f->arg[2] = fi->st.st_nlink;
        cop_dump_attributes(d, f, &fi->st);
        f->path = cop_image_puts(d->writer, fi->link);
        if (f->arg[2] > 0)
                return 0;
        f->link = cop_dump_link(d, known->dev, known->ino, &first);
        if (cop_dump_has_lease(fi->text)) /* opening it to read it would ask the holder to give it back */
                return cop_not_freezable(d, known->proc, err, "has a lease on the removed file %.100s (fd %d)",
                                         fi->link, known->fd);
        return first ? dump_content(d, known, f, fi, "deleted file", err) : 0;
}

static void describe_folder(const struct cop_dump *d, struct img_file *f, const struct stat *st)
{
        f->kind = IMG_FILE_DIRECTORY;
        f->arg[1] = st->st_mode;
        f->arg[2] = st->st_nlink;
        cop_dump_attributes(d, f, st);
}

int cop_dump_link_target(struct cop_dump *d, int fd, const char *name, struct img_file *f, struct cop_error *err)
{
        char target[4096];
        ssize_t n = readlinkat(fd, name, target, sizeof(target) - 1);

        if (n < 0)
                return cop_error_errno(err, errno, "reading a symbolic link");
        target[n] = '\0';
        f->data = cop_image_puts(d->writer, target);
        return 0;
}

static int dump_removed_symlink(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f,
                                struct cop_error *err)
{
        int fd = cop_dump_duplicate(d, known, err);

        return fd < 0 ? fd : cop_dump_link_target(d, fd, "", f, err);
}

int cop_dump_folder(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                    struct cop_error *err)
{
        bool first;
        int r = cop_dump_settle_name(d, known, fi, err);

        if (r < 0)
                return r;
        describe_folder(d, f, &fi->st);
        if (fi->st.st_nlink == 0) {
                if (S_ISSOCK(fi->st.st_mode))
                        return cop_not_freezable(d, known->proc, err, "holds the removed %.100s (fd %d)", fi->link,
                                                 known->fd);
                f->link = cop_dump_link(d, known->dev, known->ino, &first);
        }
        f->path = cop_image_puts(d->writer, fi->link);
        return f->arg[2] == 0 && S_ISLNK(fi->st.st_mode) ? dump_removed_symlink(d, known, f, err) : 0;
}

uint32_t cop_dump_removed_folder(struct cop_dump *d, const char *path, const struct stat *st)
{
        struct img_file f = {.flags = O_PATH | O_DIRECTORY, .dev = st->st_dev, .ino = st->st_ino};
        bool first;

        describe_folder(d, &f, st);
        f.arg[2] = 0;
        f.link = cop_dump_link(d, st->st_dev, st->st_ino, &first);
        f.path = cop_image_puts(d->writer, path);
        return cop_image_add(d->writer, IMG_FILES, &f);
}

/* The same device under the name that it has everywhere. */
const char *cop_dump_device_name(dev_t device)
{
        static const char *const memory[] = {
                [3] = "/dev/null", [5] = "/dev/zero", [7] = "/dev/full", [8] = "/dev/random", [9] = "/dev/urandom"};

        if (major(device) == 5 && minor(device) == 0)
                return "/dev/tty";
        return major(device) == 1 && minor(device) < ELEMENTSOF(memory) ? memory[minor(device)] : NULL;
}
