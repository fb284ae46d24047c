/* MOVE: rename, or copy and remove where the kernel cannot rename.
 *
 * EXDEV is common in a sandbox: /tmp and /workspace may be different file systems, and overlayfs refuses to rename a
 * folder that comes from the image.  Then the tree is copied to a temporary name beside the target, renamed into place,
 * and only then is the source removed: at no time is either name a half.  Owners are kept as far as the user may, modes
 * and times always; FIFOs and sockets are made anew, devices refused.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "ops.h"
#include "sandbox/wire.h"
#include "walk.h"

struct copy {
        const char *shown;
        int fds[COP_WALK_LEVELS_MAX + 1]; /* owned: the folders of the target on the way; [0] is its root */
        size_t depth;
};

static void copy_done(struct copy *c)
{
        while (c->depth > 0)
                cop_close(c->fds[--c->depth]);
}

static void keep_owner_and_time(int fd, const struct stat *st)
{
        struct timespec times[2] = {st->st_atim, st->st_mtim};
        mode_t mode = st->st_mode & 07777;

        if (fchown(fd, st->st_uid, st->st_gid) < 0)
                mode &= (mode_t) ~(S_ISUID | S_ISGID);
        fchmod(fd, mode);
        futimens(fd, times);
}

static int copy_bytes(int from, int to, const char *shown, struct cop_error *err)
{
        _cleanup_free_ char *chunk = malloc(COP_FILE_CHUNK);

        if (!chunk)
                return cop_error_errno(err, ENOMEM, "moving %s", shown);
        for (;;) {
                ssize_t n = read(from, chunk, COP_FILE_CHUNK);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cop_file_error(err, errno, "moving", shown);
                if (n == 0)
                        return 0;
                int r = cop_write_all(to, chunk, (size_t)n);
                if (r < 0)
                        return cop_file_error(err, -r, "moving", shown);
                cop_file_progress();
        }
}

static int copy_file(int from_dir, const char *from, int to_dir, const char *to, const char *shown,
                     struct cop_error *err)
{
        struct stat st;
        _cleanup_close_ int in = cop_file_open_regular(from_dir, from, O_RDONLY | O_NOFOLLOW, &st, err);
        if (in < 0)
                return in;
        _cleanup_close_ int out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return cop_file_error(err, errno, "moving", shown);
        int r = copy_bytes(in, out, shown, err);
        if (r == 0)
                keep_owner_and_time(out, &st);
        return r;
}

static int copy_special(const struct cop_walk_entry *e, int to_dir, const char *to, const char *shown,
                        struct cop_error *err)
{
        struct timespec times[2] = {e->st.st_atim, e->st.st_mtim};
        char target[PATH_MAX];
        int r = 0;

        if (S_ISLNK(e->st.st_mode)) {
                ssize_t n = readlinkat(e->dir_fd, e->name, target, sizeof(target) - 1);
                if (n < 0)
                        return cop_file_error(err, errno, "moving", shown);
                target[n] = '\0';
                r = symlinkat(target, to_dir, to);
        } else if (S_ISFIFO(e->st.st_mode) || S_ISSOCK(e->st.st_mode)) {
                r = mknodat(to_dir, to, e->st.st_mode, 0);
        } else {
                return cop_error_set(err, EINVAL, COP_ERR_file_type,
                                     "moving %.600s: a device cannot go to another file system", shown);
        }
        if (r < 0)
                return cop_file_error(err, errno, "moving", shown);
        if (fchownat(to_dir, to, e->st.st_uid, e->st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                errno = 0; /* it stays ours */
        utimensat(to_dir, to, times, AT_SYMLINK_NOFOLLOW);
        return 0;
}

static int open_copy_folder(struct copy *c, int at_fd, const char *name, struct cop_error *err)
{
        if (mkdirat(at_fd, name, 0700) < 0)
                return cop_file_error(err, errno, "moving", c->shown);
        int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return cop_file_error(err, errno, "moving", c->shown);
        c->fds[c->depth++] = fd;
        return 0;
}

static int copy_entry(const struct cop_walk_entry *e, void *userdata, struct cop_error *err)
{
        struct copy *c = userdata;
        int to_dir = c->fds[c->depth - 1];

        if (e->leaving) {
                keep_owner_and_time(to_dir, &e->st);
                cop_close(c->fds[--c->depth]);
                return 0;
        }
        if (S_ISDIR(e->st.st_mode)) {
                if (c->depth == COP_WALK_LEVELS_MAX)
                        return cop_error_set(err, ELOOP, COP_ERR_unsupported,
                                             "moving %.600s to another file system: more than %d folders deep",
                                             c->shown, COP_WALK_LEVELS_MAX);
                return open_copy_folder(c, to_dir, e->name, err);
        }
        if (S_ISREG(e->st.st_mode))
                return copy_file(e->dir_fd, e->name, to_dir, e->name, c->shown, err);
        return copy_special(e, to_dir, e->name, c->shown, err);
}

static int copy_tree(const char *from, const char *to, const struct stat *st, struct cop_error *err)
{
        __attribute__((cleanup(copy_done))) struct copy c = {.shown = from};
        struct cop_walk walk = {.fn = copy_entry, .userdata = &c, .leave = true, .depth = UINT64_MAX};
        _cleanup_close_ int fd = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return cop_file_error(err, errno, "moving", from);
        int r = open_copy_folder(&c, AT_FDCWD, to, err);
        if (r == 0)
                r = cop_walk_tree(&walk, fd, from, err);
        if (r == 0)
                keep_owner_and_time(c.fds[0], st);
        return r;
}

static int copy_any(const char *from, const char *to, const struct stat *st, struct cop_error *err)
{
        struct cop_walk_entry entry = {.dir_fd = AT_FDCWD, .name = from, .path = from, .st = *st};

        if (S_ISDIR(st->st_mode))
                return copy_tree(from, to, st, err);
        if (S_ISREG(st->st_mode))
                return copy_file(AT_FDCWD, from, AT_FDCWD, to, from, err);
        return copy_special(&entry, AT_FDCWD, to, from, err);
}

static int remove_any(const char *path, struct cop_error *err)
{
        struct stat st;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : cop_file_error(err, errno, "removing", path);
        if (S_ISDIR(st.st_mode))
                return cop_tree_remove(AT_FDCWD, path, err);
        return unlink(path) == 0 ? 0 : cop_file_error(err, errno, "removing", path);
}

static int move_across(const struct cop_file_request *q, const struct stat *st, struct cop_error *err)
{
        _cleanup_free_ char *parent = cop_file_parent(q->path2), *name = NULL;
        _cleanup_free_ char *source_parent = cop_file_parent(q->path);
        unsigned replace = q->flags & COP_FILE_OVERWRITE ? 0 : RENAME_NOREPLACE;
        char random[17];

        if (!parent || !source_parent || asprintf(&name, "%s/.%s.coppice-tmp", parent, cop_id_hex(random, 8)) < 0) {
                name = NULL;
                return cop_error_errno(err, ENOMEM, "moving %s", q->path);
        }
        if (access(source_parent, W_OK) < 0) /* seen now, not after gigabytes were copied */
                return cop_file_error(err, errno, "moving", q->path);
        int r = copy_any(q->path, name, st, err);
        if (r == 0 && renameat2(AT_FDCWD, name, AT_FDCWD, q->path2, replace) < 0)
                r = cop_file_error(err, errno, "moving to", q->path2);
        if (r < 0) {
                remove_any(name, NULL);
                return r;
        }
        r = remove_any(q->path, err);
        return r < 0 ? cop_error_wrap(err, r, "the copy is at %.300s, but the source could not be removed", q->path2)
                     : 0;
}

int cop_file_move(struct cop_file_request *q, struct cop_error *err)
{
        unsigned replace = q->flags & COP_FILE_OVERWRITE ? 0 : RENAME_NOREPLACE;
        struct stat st;
        int r = 0;

        if (lstat(q->path, &st) < 0)
                return cop_file_error(err, errno, "moving", q->path);
        if (q->flags & COP_FILE_PARENTS)
                r = cop_file_make_parents(q->path2, err);
        if (r < 0)
                return r;
        if (renameat2(AT_FDCWD, q->path, AT_FDCWD, q->path2, replace) < 0) {
                if (errno == EXDEV)
                        r = move_across(q, &st, err);
                else if (errno == EINVAL)
                        r = cop_error_set(err, EINVAL, COP_ERR_bad_request, "moving %.300s to %.300s: into itself",
                                          q->path, q->path2);
                else if (errno == ENOENT || errno == EACCES || errno == EPERM || errno == ENOTDIR)
                        r = cop_error_set(err, errno,
                                          errno == ENOENT    ? COP_ERR_file_not_found
                                          : errno == ENOTDIR ? COP_ERR_file_type
                                                             : COP_ERR_file_access,
                                          "moving %.300s to %.300s: %s", q->path, q->path2, strerror(errno));
                else
                        r = cop_file_error(err, errno, "moving to", q->path2);
        }
        if (r < 0)
                return r;
        cop_msg_done(&q->reply);
        uint32_t id = q->reply.id;
        cop_msg_init(&q->reply, COP_WIRE_REPLY, id);
        cop_msg_add_str(&q->reply, COP_TAG_PATH, q->path2);
        cop_file_add_stat(&q->reply, &st);
        return 0;
}
