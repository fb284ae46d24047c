#include "freezer/find_inode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

struct queue {
        char **paths; /* owned, and what they point to */
        size_t head, count, allocated;
};

static int push(struct queue *q, const char *folder, const char *name)
{
        char *path = NULL;

        if (q->count == q->allocated) {
                q->allocated = q->allocated ? 2 * q->allocated : 256;
                char **bigger = reallocarray(q->paths, q->allocated, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                q->paths = bigger;
        }
        if (asprintf(&path, "%s%s%s", folder, *folder && *name ? "/" : "", name) < 0)
                return -ENOMEM;
        q->paths[q->count++] = path;
        return 0;
}

static void queue_done(struct queue *q)
{
        for (size_t i = 0; i < q->count; i++)
                free(q->paths[i]);
        free(q->paths);
}

static bool is_it(int dir_fd, const char *name, dev_t dev, ino_t ino, dev_t mount_dev, bool *ret_descend)
{
        struct stat st;

        *ret_descend = false;
        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return false;
        *ret_descend = S_ISDIR(st.st_mode) && st.st_dev == mount_dev;
        /* An overlay shows files with the device of their layer. */
        return st.st_ino == ino && (st.st_dev == dev || !S_ISDIR(st.st_mode));
}

struct search {
        int root_fd;
        dev_t dev, mount_dev;
        ino_t ino;
        size_t *budget;
        struct queue queue;
};

static int search_folder(struct search *s, const char *folder, char *ret_path, size_t size)
{
        int fd = openat(s->root_fd, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!dir) {
                cop_close(fd);
                return -ENOENT;
        }
        while ((e = readdir(dir))) {
                bool descend;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (*s->budget == 0)
                        return -EAGAIN;
                --*s->budget;
                if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN && e->d_ino != s->ino)
                        continue;
                if (is_it(dirfd(dir), e->d_name, s->dev, s->ino, s->mount_dev, &descend)) {
                        int n = snprintf(ret_path, size, "%s%s%s", folder, *folder ? "/" : "", e->d_name);
                        return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
                }
                if (descend && push(&s->queue, folder, e->d_name) < 0)
                        return -ENOMEM;
        }
        return -ENOENT;
}

int cop_find_inode(int root_fd, const char *start, dev_t dev, ino_t ino, size_t *budget, char *ret_path, size_t size)
{
        struct search s = {.root_fd = root_fd, .dev = dev, .ino = ino, .budget = budget};
        struct queue *q = &s.queue;
        struct stat st;
        int r = -ENOENT;

        while (*start == '/')
                start++;
        if (fstatat(root_fd, *start ? start : ".", &st, 0) < 0)
                return -errno;
        if (st.st_ino == ino && st.st_dev == dev)
                return snprintf(ret_path, size, "%s", start) < (int)size ? 0 : -ENAMETOOLONG;
        s.mount_dev = st.st_dev;
        if (push(q, start, "") < 0)
                return -ENOMEM;
        while (r == -ENOENT && q->head < q->count)
                r = search_folder(&s, q->paths[q->head++], ret_path, size);
        queue_done(q);
        return r;
}
