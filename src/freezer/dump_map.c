/* Files that are mapped, and executables: each becomes an img_file as if somebody had it open. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"

static int open_mapped(const struct cop_dump *d, uint32_t proc, const struct cop_vma *v)
{
        char path[64];

        snprintf(path, sizeof(path), "map_files/%llx-%llx", (unsigned long long)v->start, (unsigned long long)v->end);
        return cop_dump_open_reader(d->tree.procs[proc].dir_fd, path);
}

/* The same for who may not open it, and so cannot be told whether it has another name: it is looked for where that matters. */
static int dump_unopened(struct cop_dump *d, uint32_t proc, struct cop_dump_file *known, struct img_file *f, char *path,
                         struct cop_error *err)
{
        const struct stat st = {.st_dev = known->dev, .st_ino = known->ino};
        bool first;

        if (f->kind == IMG_FILE_REGULAR && f->flags == O_RDWR &&
            cop_dump_other_name(d, &st, path, COP_DUMP_LINK) == 0) {
                f->path = cop_image_puts(d->writer, path);
                f->arg[2] = 1;
                return 0;
        }
        f->link = cop_dump_link(d, known->dev, known->ino, &first);
        return first ? cop_dump_object_mapped(d, proc, f, path, err) : 0;
}

static int dump_mapped_object(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_dump_file *known,
                              struct img_file *f, char *path, struct cop_error *err)
{
        bool first;
        struct stat st;

        _cleanup_close_ int fd = open_mapped(d, proc, v);
        if (fd < 0 && d->guest)
                return dump_unopened(d, proc, known, f, path, err);
        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_not_freezable(d, proc, err, "maps %.100s, which only root can read (%s)", path,
                                         strerror(errno));
        if (f->kind == IMG_FILE_REGULAR && st.st_nlink > 0 &&
            f->flags == O_RDWR) { /* what is written must not be lost */
                if (cop_dump_other_name(d, &st, path, COP_DUMP_LINK) < 0)
                        return cop_not_freezable(d, proc, err,
                                                 "maps %.100s, whose name was removed while another one is not found",
                                                 path);
                f->path = cop_image_puts(d->writer, path);
                f->arg[2] = st.st_nlink;
                return 0;
        }
        /* An overlay's numbers in maps are not those that stat tells of the same file when it is open, too. */
        f->link = cop_dump_link(d, st.st_dev, st.st_ino, &first);
        f->arg[0] = (uint64_t)st.st_size;
        f->arg[1] = st.st_mode;
        f->arg[2] = 0;
        cop_dump_attributes(d, f, &st);
        if (f->kind == IMG_FILE_MEMFD) {
                f->arg[1] = (uint64_t)fcntl(fd, F_GET_SEALS);
                f->arg[2] = st.st_mode;
        }
        return first ? cop_dump_object_pages(d, fd, NULL, f, err) : 0;
}

/* The name of an external file that is mapped, or NULL.  Overlayfs tells other numbers in maps than stat does.  A mapped file whose
 * path is "/" is one that is mounted itself, out of the tree's sight: it is asked, and must be an external one. */
static int mapped_external(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, const char *path,
                           const char **ret, struct cop_error *err)
{
        struct stat st = {.st_dev = v->dev, .st_ino = v->ino};

        *ret = cop_dump_external_name(d, &st);
        if (*ret || strcmp(path, "/") != 0)
                return 0;
        _cleanup_close_ int fd = open_mapped(d, proc, v);
        if (fd >= 0 && fstat(fd, &st) == 0)
                *ret = cop_dump_external_name(d, &st);
        return *ret ? 0 : cop_not_freezable(d, proc, err, "maps a file that has no name in the sandbox");
}

/* Of an image that is not an ancestor (those are known by their numbers): by its path it would not be there at the thaw. */
static bool is_page_file(const char *path)
{
        const char *name = strrchr(path, '/');

        return name && cop_image_is_pages_name(name + 1);
}

int cop_dump_mapped_file(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_error *err)
{
        /* Of one file all shared writable mappings can use one description, and all others another. */
        uint32_t flags = v->flags & IMG_VMA_SHARED && v->flags & IMG_VMA_MAYWRITE ? O_RDWR : O_RDONLY;
        char path[COP_DUMP_LINK];
        struct img_file f = {.flags = flags, .dev = v->dev, .ino = v->ino};
        struct cop_dump_file known = {.dev = v->dev,
                                      .ino = v->ino,
                                      .proc = proc,
                                      .fd = -1,
                                      .own_fd = -EBADF,
                                      .flags = flags,
                                      .mapping = true};
        const char *external;

        const struct cop_dump_file *same = cop_dump_known_mapping(d, v->dev, v->ino, flags == O_RDWR);
        if (same)
                return (int)same->index;
        snprintf(path, sizeof(path), "%s", d->vmas[proc].text + v->path);
        bool deleted = cop_dump_cut_deleted(path);
        int r = mapped_external(d, proc, v, path, &external, err);
        if (r < 0)
                return r;
        if (external) { /* a program that has no path in the tree's root: its first process's own */
                f.kind = IMG_FILE_EXTERNAL;
                f.path = cop_image_puts(d->writer, external);
        } else if (strncmp(path, "/memfd:", 7) == 0) {
                f.kind = IMG_FILE_MEMFD;
                f.path = cop_image_puts(d->writer, path + 7);
                r = dump_mapped_object(d, proc, v, &known, &f, path, err);
        } else if (strncmp(path, "/SYSV", 5) == 0 && deleted)
                return cop_dump_sysv_area(d, proc, v, err);
        else if (strncmp(path, "/dev/zero", 9) == 0 || strncmp(path, "[anon_shmem:", 12) == 0) {
                f.kind = IMG_FILE_SHMEM;
                f.path = cop_image_puts(d->writer, "shared-anonymous");
                r = dump_mapped_object(d, proc, v, &known, &f, path, err);
        } else if (is_page_file(path)) {
                return cop_not_freezable(d, proc, err, "maps pages of the memory image in %.200s, which is no parent",
                                         path);
        } else {
                f.kind = IMG_FILE_REGULAR;
                f.path = cop_image_puts(d->writer, path);
                if (deleted)
                        r = dump_mapped_object(d, proc, v, &known, &f, path, err);
                else
                        f.arg[2] = 1;
        }
        if (r < 0)
                return r;
        known.index = cop_image_add(d->writer, IMG_FILES, &f);
        return cop_dump_remember(d, known) ? (int)known.index : cop_error_errno(err, ENOMEM, "collecting mapped files");
}

int cop_dump_executable(struct cop_dump *d, uint32_t proc, const char *link, const struct stat *st,
                        struct cop_error *err)
{
        struct img_file f = {.kind = IMG_FILE_REGULAR, .flags = O_RDONLY, .arg = {0, 0, 1}};
        const char *external = cop_dump_external_name(d, st);

        if (external)
                f.kind = IMG_FILE_EXTERNAL;
        else if (strcmp(link, "/") == 0)
                return cop_not_freezable(d, proc, err, "runs a program that has no name in the sandbox");
        f.path = cop_image_puts(d->writer, external ? external : link);
        return (int)cop_image_add(d->writer, IMG_FILES, &f);
}
