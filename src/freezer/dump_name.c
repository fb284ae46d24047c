/* Names of inodes of which the kernel tells no name that can be opened: watched ones, and open files whose name was removed
 * while another one remains.
 *
 * A watch tells its file system, which is mounted somewhere, the number of its inode and, where there is such a thing, a file handle,
 * which gives a path.  Else (overlayfs) the number is looked for.  Hard links of one file lie on one mount, most in one folder: the
 * search for another name begins in the folder of the old one and goes on from the top of the mount.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"
#include "freezer/find_inode.h"

#define WATCH_BUDGET 300000
#define LINK_BUDGET 100000
#define MOUNTINFO_MAX (16UL << 20)

static int open_root(const struct cop_dump *d, uint32_t proc)
{
        int fd = openat(d->tree.procs[proc].dir_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

/* What the kernel calls an open file. */
static int path_of(int fd, char *path, size_t size)
{
        char link[32];

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, size - 1);
        if (n < 0)
                return -errno;
        path[n] = '\0';
        return 0;
}

/* The file that a path is, as the tree's first process sees it. */
static int open_in_tree(int root_fd, const char *path, int flags)
{
        struct open_how how = {.flags = (unsigned)flags | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

        return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

bool cop_dump_leads_to(const struct cop_dump *d, const char *path, const struct stat *st)
{
        char inside[COP_DUMP_LINK + 8];
        struct stat there;

        /* The kernel's paths have no links in them that could lead out of there. */
        snprintf(inside, sizeof(inside), "root%s", path);
        return fstatat(d->tree.procs[0].dir_fd, inside, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
               there.st_ino == st->st_ino && there.st_dev == st->st_dev;
}

/* ---- watches ---- */

struct watched {
        int root_fd; /* owned */
        dev_t dev;   /* of the file system; an overlay's files have those of their layers */
        ino_t ino;
        const struct cop_mounts *mounts;
};

/* The place of the next mount of the watch's file system from *at on, or NULL. */
static const char *next_mount(const struct watched *w, size_t *at)
{
        while (*at < w->mounts->count) {
                const struct cop_mountinfo *m = &w->mounts->list[(*at)++];
                if (m->device == w->dev)
                        return m->mount_point;
        }
        return NULL;
}

static int watch_by_handle(const struct watched *w, const char *line, const char *place, char *path, size_t size)
{
        struct {
                struct file_handle h;
                unsigned char bytes[128];
        } handle = {0};
        unsigned bytes = 0, type = 0;
        int used = 0;
        struct stat st;
        const char *text = strstr(line, "fhandle-bytes:");
        const char *end = strchr(line, '\n');

        if (!text || (end && text > end) ||
            sscanf(text, "fhandle-bytes:%x fhandle-type:%x f_handle:%n", &bytes, &type, &used) != 2 || used == 0 ||
            bytes > sizeof(handle.bytes))
                return -ENOENT;
        handle.h.handle_bytes = bytes;
        handle.h.handle_type = (int)type;
        for (unsigned i = 0; i < bytes; i++) {
                unsigned byte = 0;
                (void)sscanf(text + used + 2UL * i, "%2x", &byte);
                handle.bytes[i] = (unsigned char)byte;
        }
        _cleanup_close_ int mount_fd = open_in_tree(w->root_fd, place, O_RDONLY | O_DIRECTORY);
        _cleanup_close_ int fd = mount_fd < 0 ? -EBADF : open_by_handle_at(mount_fd, &handle.h, O_PATH | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
                return -ENOENT;
        return path_of(fd, path, size);
}

static int watch_by_number(const struct watched *w, const char *start, size_t *budget, char *path, size_t size)
{
        char found[4096];
        int r = cop_find_inode(w->root_fd, start, w->dev, w->ino, budget, found, sizeof(found));

        if (r == 0 && (size_t)snprintf(path, size, "/%s", found) >= size)
                r = -ENAMETOOLONG;
        return r;
}

/* A mount may show a part of its file system, and another may lie upon it. */
static bool is_watched(const struct watched *w, const char *path)
{
        struct stat st;
        _cleanup_close_ int fd = open_in_tree(w->root_fd, path, O_PATH);

        return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == w->ino;
}

static void watched_done(struct watched *w)
{
        cop_close(w->root_fd);
}

static int begin_watched(struct cop_dump *d, const struct cop_dump_target *target, struct watched *ret)
{
        int r = d->mounts.list ? 0
                               : cop_mounts_read(d->tree.procs[0].dir_fd, "mountinfo", MOUNTINFO_MAX, &d->mounts, NULL);

        *ret = (struct watched){.root_fd = r < 0 ? r : open_root(d, 0),
                                .dev = makedev(target->sdev >> 20, target->sdev & 0xfffff),
                                .ino = target->ino,
                                .mounts = &d->mounts};
        return ret->root_fd;
}

int cop_dump_watch_name(struct cop_dump *d, const char *line, const struct cop_dump_target *target, char *path,
                        size_t size)
{
        _cleanup_(watched_done) struct watched w;
        const char *place;
        size_t at = 0;
        int r = begin_watched(d, target, &w);

        if (r < 0)
                return r;
        while ((place = next_mount(&w, &at)))
                if (watch_by_handle(&w, line, place, path, size) == 0 && is_watched(&w, path))
                        return 0;
        return -ENOENT;
}

int cop_dump_watch_search(struct cop_dump *d, uint32_t proc, const struct cop_dump_target *target, char *path,
                          size_t size)
{
        size_t budget = WATCH_BUDGET;
        _cleanup_(watched_done) struct watched w;
        char cwd[4096];
        const char *place;
        struct stat st;
        size_t at = 0;
        int r = begin_watched(d, target, &w);
        ssize_t n = readlinkat(d->tree.procs[proc].dir_fd, "cwd", cwd, sizeof(cwd) - 1);

        if (r < 0 || n < 0)
                return -ENOENT;
        cwd[n] = '\0';
        _cleanup_close_ int cwd_fd = open_in_tree(w.root_fd, cwd, O_PATH);
        r = -ENOENT;
        if (strcmp(cwd, "/") != 0 && cwd_fd >= 0 && fstat(cwd_fd, &st) == 0 && st.st_dev == w.dev)
                r = watch_by_number(&w, cwd, &budget, path, size);
        while (r < 0 && (place = next_mount(&w, &at))) {
                _cleanup_close_ int fd = open_in_tree(w.root_fd, place, O_PATH);
                if (fd >= 0 && fstat(fd, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_dev == w.dev))
                        r = watch_by_number(&w, place, &budget, path, size);
        }
        return r;
}

/* ---- files with several names ---- */

/* Cuts the last component off a path that begins with '/'; false when there was none. */
static bool cut_name(char *path)
{
        char *slash = strrchr(path, '/');

        if (!slash || !slash[1])
                return false;
        slash[slash == path ? 1 : 0] = '\0';
        return true;
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
        if (b->st_nlink == 0)
                return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
        return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_nlink == b->st_nlink &&
               a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
               a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
               a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int search_below(int root_fd, const char *folder, const struct stat *st, size_t *budget, char *path, size_t size)
{
        char found[4096];
        struct stat it;
        _cleanup_close_ int fd =
                cop_open_beneath(root_fd, folder[1] ? folder + 1 : ".", O_RDONLY | O_DIRECTORY, 0, true, NULL);

        if (fd < 0)
                return fd;
        int r = cop_find_inode(fd, "", st->st_dev, st->st_ino, budget, found, sizeof(found));
        /* The search takes a number for the inode: an overlay's files may have the same one on different layers. */
        if (r == 0 && (fstatat(fd, found, &it, AT_SYMLINK_NOFOLLOW) < 0 || !same_inode(&it, st)))
                r = -ENOENT;
        if (r == 0 && (size_t)snprintf(path, size, "%s%s%s", folder, folder[1] ? "/" : "", found) >= size)
                r = -ENAMETOOLONG;
        return r;
}

int cop_dump_other_name(const struct cop_dump *d, const struct stat *st, char *path, size_t size)
{
        size_t budget = LINK_BUDGET;
        char folder[4352], top[4352] = "";
        dev_t dev = 0;
        _cleanup_close_ int root_fd = open_root(d, 0);

        if (root_fd < 0 || path[0] != '/' || (size_t)snprintf(folder, sizeof(folder), "%s", path) >= sizeof(folder))
                return -ENOENT;
        while (cut_name(folder)) {
                struct stat there;
                _cleanup_close_ int fd =
                        cop_open_beneath(root_fd, folder[1] ? folder + 1 : ".", O_PATH | O_DIRECTORY, 0, true, NULL);
                if (fd < 0 || fstat(fd, &there) < 0)
                        continue; /* it has been removed, too */
                if (dev == 0) {
                        dev = there.st_dev;
                        if (search_below(root_fd, folder, st, &budget, path, size) == 0)
                                return 0;
                }
                if (there.st_dev != dev)
                        break;
                memcpy(top, folder, sizeof(top));
        }
        return top[0] ? search_below(root_fd, top, st, &budget, path, size) : -ENOENT;
}

/* ---- unix sockets ---- */

int cop_dump_socket_place(const struct cop_dump *d, uint32_t proc, const struct sockaddr_un *address, int file_fd,
                          char *path, size_t size)
{
        char name[sizeof(address->sun_path) + 1] = {0};
        struct stat there, st;

        memcpy(name, address->sun_path, sizeof(address->sun_path));
        bool absolute = name[0] == '/';
        struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = absolute ? RESOLVE_IN_ROOT : 0};
        _cleanup_close_ int from_fd =
                openat(d->tree.procs[proc].dir_fd, absolute ? "root" : "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_close_ int fd = from_fd < 0 ? -EBADF : (int)syscall(SYS_openat2, from_fd, name, &how, sizeof(how));
        if (fstat(file_fd, &st) < 0 ||
            (fd >= 0 && fstat(fd, &there) == 0 && there.st_ino == st.st_ino && there.st_dev == st.st_dev))
                return -EEXIST;
        int r = path_of(file_fd, path, size);
        return r == 0 && path[0] != '/' ? -ENOENT : r;
}
