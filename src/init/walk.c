#include "walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "ops.h"

#define PATH_BYTES_MAX (128 * 1024)  /* 256 levels of names of 255 bytes are half of it */
#define NAMES_BYTES_MAX (256u << 20) /* names on the way down a tree that is being removed: over a million levels */
#define REFILLED_MAX 1000            /* folders into which others put new files while we leave them */

static bool is_dot(const char *name)
{
        return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static DIR *open_folder(int at_fd, const char *name)
{
        int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

        if (!dir)
                cop_close(fd);
        return dir;
}

/* -- walk ------------------------------------------------------------------------------------------------------------
 */

struct level {
        DIR *dir;        /* owned */
        size_t path_len; /* of the folder's own path, without a slash at its end */
        struct stat st;  /* of the folder, for the second call */
};

struct state {
        struct cop_walk *w;
        struct level levels[COP_WALK_LEVELS_MAX];
        size_t depth; /* levels in use */
        struct cop_buf path;
        const char *shown;
};

static void state_done(struct state **p)
{
        struct state *s = *p;

        if (!s)
                return;
        while (s->depth > 0)
                closedir(s->levels[--s->depth].dir);
        cop_buf_done(&s->path);
        free(s);
        *p = NULL;
}

static int fail(struct state *s, int errnum, struct cop_error *err)
{
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/%s", s->shown, s->path.data ? s->path.data : "") < 0)
                path = NULL;
        return cop_file_error(err, errnum, "walking through", path ? path : s->shown);
}

static int call(struct state *s, struct level *parent, const struct stat *st, bool leaving, struct cop_error *err)
{
        size_t skip = parent->path_len > 0 ? parent->path_len + 1 : 0;
        struct cop_walk_entry entry = {.dir_fd = dirfd(parent->dir),
                                       .name = s->path.data + skip,
                                       .path = s->path.data,
                                       .st = *st,
                                       .leaving = leaving};
        return s->w->fn(&entry, s->w->userdata, err);
}

static int enter(struct state *s, const struct stat *st, struct cop_error *err)
{
        struct level *parent = &s->levels[s->depth - 1], *level = &s->levels[s->depth];
        const char *name = s->path.data + (parent->path_len > 0 ? parent->path_len + 1 : 0);

        if (s->depth >= s->w->depth)
                return 0;
        if (s->depth == COP_WALK_LEVELS_MAX) {
                s->w->truncated = true;
                return 0;
        }
        level->dir = open_folder(dirfd(parent->dir), name);
        if (!level->dir) {
                /* With `leave` the caller counts on the second call. */
                bool gone = !s->w->leave && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
                return gone || (errno == EACCES && s->w->skip_unreadable) ? 0 : fail(s, errno, err);
        }
        level->path_len = s->path.len;
        level->st = *st;
        s->depth++;
        return 0;
}

static int leave(struct state *s, struct cop_error *err)
{
        struct level *level = &s->levels[--s->depth];

        closedir(level->dir);
        if (s->depth == 0 || !s->w->leave)
                return 0;
        s->path.len = level->path_len;
        s->path.data[s->path.len] = '\0';
        return call(s, &s->levels[s->depth - 1], &level->st, true, err);
}

static int visit(struct state *s, const char *name, struct cop_error *err)
{
        struct level *level = &s->levels[s->depth - 1];
        struct stat st;

        s->path.len = level->path_len;
        if (cop_buf_adds(&s->path, s->path.len > 0 ? "/" : "") < 0 || cop_buf_adds(&s->path, name) < 0)
                return cop_error_errno(err, ENOMEM, "walking through %.600s", s->shown);
        cop_file_progress();
        if (fstatat(dirfd(level->dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : fail(s, errno, err);
        int r = call(s, level, &st, false, err);
        if (r == 0 && S_ISDIR(st.st_mode))
                return enter(s, &st, err);
        return r < 0 ? r : 0;
}

int cop_walk_tree(struct cop_walk *w, int dir_fd, const char *shown, struct cop_error *err)
{
        _cleanup_(state_done) struct state *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "walking through %.600s", shown);
        s->w = w;
        s->shown = shown;
        s->path.max = PATH_BYTES_MAX;
        s->levels[0].dir = open_folder(dir_fd, ".");
        if (!s->levels[0].dir)
                return fail(s, errno, err);
        s->depth = 1;
        while (s->depth > 0) {
                errno = 0;
                struct dirent *entry = readdir(s->levels[s->depth - 1].dir);
                int r = 0;
                if (entry && !is_dot(entry->d_name))
                        r = visit(s, entry->d_name, err);
                else if (!entry && errno != 0)
                        r = fail(s, errno, err);
                else if (!entry)
                        r = leave(s, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* -- removal ---------------------------------------------------------------------------------------------------------
 */

/* Theory of operation: only the folder we are in is open.  Everything in it that is no folder is unlinked; at the first
 * folder that is not empty we go down into it, and come back through "..", which must be the folder we came from
 * (device and inode are remembered): a rename by someone else cannot lead the removal to another place.  A folder is
 * read anew after each return, but then holds fewer entries. */

struct step {
        dev_t dev;
        ino_t ino;
        uint32_t name_len;
};

struct removal {
        struct cop_buf steps; /* struct step, parents of the current folder, outermost first */
        struct cop_buf names; /* of the folders gone into, with NUL, outermost first */
        DIR *dir;             /* owned: the current folder */
        struct stat st;       /* of it */
        dev_t dev;
};

static void removal_done(struct removal *r)
{
        cop_buf_done(&r->steps);
        cop_buf_done(&r->names);
        cop_closedirp(&r->dir);
}

static int go_to(struct removal *r, int fd)
{
        DIR *dir = fdopendir(fd);

        if (!dir) {
                int saved = errno;
                cop_close(fd);
                return -saved;
        }
        cop_closedirp(&r->dir);
        r->dir = dir;
        return fstat(dirfd(dir), &r->st) < 0 ? -errno : 0;
}

static int go_down(struct removal *r, const char *name)
{
        struct step step = {r->st.st_dev, r->st.st_ino, (uint32_t)strlen(name) + 1};
        struct stat st;
        int fd = openat(dirfd(r->dir), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0 || st.st_dev != r->dev) {
                cop_close(fd);
                return -EXDEV;
        }
        if (cop_buf_add(&r->steps, &step, sizeof(step)) < 0 || cop_buf_add(&r->names, name, step.name_len) < 0) {
                cop_close(fd);
                return -ENOMEM;
        }
        return go_to(r, fd);
}

/* Back to the parent, and rmdir of where we were. */
static int go_up(struct removal *r)
{
        struct step step;
        int fd = openat(dirfd(r->dir), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
                return -errno;
        int e = go_to(r, fd);
        if (e < 0)
                return e;
        r->steps.len -= sizeof(step);
        memcpy(&step, r->steps.data + r->steps.len, sizeof(step));
        if (step.dev != r->st.st_dev || step.ino != r->st.st_ino)
                return -ESTALE;
        r->names.len -= step.name_len;
        if (unlinkat(dirfd(r->dir), r->names.data + r->names.len, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return -errno;
        return 0;
}

/* Unlinks what it can in the current folder.  1: went down into a subfolder, 0: the folder is empty. */
static int empty_current(struct removal *r)
{
        struct dirent *entry;

        while ((errno = 0, entry = readdir(r->dir))) {
                int fd = dirfd(r->dir);
                if (is_dot(entry->d_name))
                        continue;
                cop_file_progress();
                if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
                        continue;
                if (errno != EISDIR && errno != EPERM)
                        return -errno;
                int first = errno;
                if (unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                        continue;
                if (errno == ENOTDIR)
                        return -first;
                if (errno != ENOTEMPTY && errno != EEXIST)
                        return -errno;
                char name[NAME_MAX + 1]; /* the entry goes with its DIR */
                snprintf(name, sizeof(name), "%s", entry->d_name);
                int e = go_down(r, name);
                return e < 0 ? e : 1;
        }
        return -errno;
}

static int remove_all(struct removal *r)
{
        for (int refilled = 0; refilled < REFILLED_MAX;) {
                int e = empty_current(r);
                if (e < 0)
                        return e;
                if (e > 0)
                        continue;
                if (r->steps.len == 0)
                        return 0;
                e = go_up(r);
                if (e == -ENOTEMPTY) /* someone puts new files in: the parent's turn sees the folder again */
                        refilled++;
                else if (e < 0)
                        return e;
        }
        return -ENOTEMPTY;
}

int cop_tree_remove(int at_fd, const char *path, struct cop_error *err)
{
        __attribute__((cleanup(removal_done))) struct removal r = {.steps.max = NAMES_BYTES_MAX,
                                                                   .names.max = NAMES_BYTES_MAX};
        int e, fd = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
                return cop_file_error(err, errno, "removing", path);
        e = go_to(&r, fd);
        r.dev = r.st.st_dev;
        if (e == 0 && r.dir)
                e = remove_all(&r);
        if (e == 0 && unlinkat(at_fd, path, AT_REMOVEDIR) < 0)
                e = -errno;
        if (e == 0)
                return 0;
        if (e == -ESTALE)
                return cop_error_set(err, ESTALE, COP_ERR_io_error,
                                     "removing %.600s: a folder in it was moved meanwhile; try again", path);
        if (e == -EXDEV)
                return cop_error_set(err, EXDEV, COP_ERR_in_use, "removing %.600s: something is mounted in it", path);
        return cop_file_error(err, -e, "removing", path);
}
