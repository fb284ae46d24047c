/* Descriptors that stand for a process: pidfds, files of procfs, and the namespaces of the tree, which each of its processes has.
 *
 * A thaw places them when all processes of the tree are there, but their other threads are not: what stands for one of those is
 * refused.  What stood for a process that has ended will stand for another one that has ended.  A file of /proc says nothing of it; a pidfd
 * tells its inode, which is another for each process (since 6.9), and how it ended (since 6.15).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "freezer/dump.h"

struct pidfd_info { /* of linux/pidfd.h, since 6.13; mask and exit_code are used */
        uint64_t mask, cgroup;
        uint32_t ids[11];
        int32_t exit_code;
};
#define PIDFD_GET_INFO_ _IOWR(0xFF, 11, struct pidfd_info)
#define PIDFD_INFO_EXIT_ (1U << 3)

static int dump_end(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_error *err)
{
        struct pidfd_info info = {.mask = PIDFD_INFO_EXIT_};
        int fd = cop_dump_duplicate(d, known, err);

        if (fd < 0)
                return fd;
        if (ioctl(fd, PIDFD_GET_INFO_, &info) == 0 && info.mask & PIDFD_INFO_EXIT_)
                f->arg[1] = (uint64_t)(info.exit_code & 0xffff);
        return 0;
}

int cop_dump_pidfd(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, pid_t pid,
                   struct cop_error *err)
{
        if (pid <= 0)
                return dump_end(d, known, f, err);
        f->arg[0] = (uint64_t)cop_pid_inside(d->tree.pidns_fd, pid);
        for (uint32_t i = 0; i < d->tree.count && f->arg[0]; i++)
                if (d->tree.procs[i].pid == pid)
                        return 0;
        return cop_not_freezable(d, known->proc, err, "holds a pidfd of a %s (fd %d)",
                                 f->arg[0] ? "single thread" : "process outside", known->fd);
}

/* The number that follows `before` in a path, 0: there is none. */
static pid_t number_after(const char *path, const char *before)
{
        size_t n = strlen(before);

        return strncmp(path, before, n) == 0 ? (pid_t)strtol(path + n, NULL, 10) : 0;
}

static bool is_process(struct cop_dump *d, pid_t pid)
{
        for (uint32_t i = 0; i < d->tree.count; i++)
                if (d->tree.procs[i].nspid == pid)
                        return true;
        return false;
}

int cop_dump_proc_file(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, const char *path,
                       const struct stat *st, struct cop_error *err)
{
        pid_t pid = number_after(path, "/proc/"), tid = 0;
        const char *rest = pid ? strchr(path + strlen("/proc/"), '/') : NULL;
        struct stat now;

        f->kind = IMG_FILE_PROC;
        f->path = cop_image_puts(d->writer, path);
        if (pid == 0)
                return 0;
        if (rest)
                tid = number_after(rest, "/task/");
        _cleanup_close_ int root_fd = openat(d->tree.procs[0].dir_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
        /* Of another inode: of an earlier process with that number. */
        if (root_fd < 0 || fstatat(root_fd, path + 1, &now, AT_SYMLINK_NOFOLLOW) < 0 || now.st_ino != st->st_ino) {
                f->arg[0] = 1;
                return 0;
        }
        if (!is_process(d, pid) || (tid && tid != pid))
                return cop_not_freezable(d, known->proc, err, "holds %.100s of a single thread (fd %d)", path,
                                         known->fd);
        return 0;
}

/* "net:[4026531840]" */
bool cop_dump_namespace(struct cop_dump *d, struct img_file *f, const char *link, const struct stat *st)
{
        int n = (int)strcspn(link, ":");
        char path[64];
        struct stat own;

        snprintf(path, sizeof(path), "ns/%.*s", MIN_OF(n, 32), link);
        if (strncmp(link + n, ":[", 2) != 0 || fstatat(d->tree.procs[0].dir_fd, path, &own, 0) < 0 ||
            own.st_dev != st->st_dev || own.st_ino != st->st_ino)
                return false;
        snprintf(path, sizeof(path), "/proc/self/ns/%.*s", MIN_OF(n, 32), link);
        f->kind = IMG_FILE_PROC;
        f->path = cop_image_puts(d->writer, path);
        return true;
}
