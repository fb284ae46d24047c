/* File operations inside a sandbox.
 *
 * Theory of operation
 *
 * The worker is an ordinary process of the sandbox: its root, its user, its limits.  A link, "..", /proc or a bind
 * mount therefore lead only where that user's own programs can go, and no path is checked here for leading "out".  What
 * is left to fear is that the worker hangs or lies:
 *
 *   - Data is read from and written to regular files only.  The kind is looked at with O_PATH, the file then opened
 * with O_NONBLOCK and compared: a FIFO that is swapped in between is opened without waiting, seen, and closed.
 *   - Every step that moved something calls cop_file_progress, which sets alarm(2) anew.  A worker that stands still (a
 *     reader that does not read, a file system that does not answer) dies by SIGALRM, and pid 1 says `timeout`.
 *   - Other processes may rename, truncate and remove while we work.  Every such race ends in an error or in one of the
 *     states that existed; nothing is sent that was not announced.
 *   - The worker may be killed at any time, since it has the user's uid.  Pid 1 then answers.  It cannot be traced: it
 * is not dumpable.
 *
 * Files are read in pieces of COP_FILE_CHUNK; memory does not grow with size, and with depth only by the names on the
 * way.
 */
#include "ops.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/wire.h"
#include "walk.h"

#define PATH_BYTES_MAX 65536 /* the kernel's own limit gives the clearer error; this one bounds memory */
#define MODE_MASK 07777

unsigned cop_file_stall_seconds = 60;

/* -- requests --------------------------------------------------------------------------------------------------------
 */

/* "/a//b/./c" for "b/./c" below "/a/": ".." stays, because only the kernel knows where links lead. */
static char *absolute_path(const char *workdir, const char *path)
{
        char *all = NULL;

        if (asprintf(&all, "%s/%s", path[0] == '/' ? "" : workdir, path) < 0)
                return NULL;
        char *out = all;
        for (const char *p = all; *p;) {
                const char *end = strchrnul(p + 1, '/');
                size_t n = (size_t)(end - p);
                if (n > 1 && !(n == 2 && p[1] == '.')) {
                        memmove(out, p, n);
                        out += n;
                }
                p = end;
        }
        if (out == all)
                *out++ = '/';
        *out = '\0';
        return all;
}

static int get_path(const struct cop_msg *m, uint16_t tag, const char *workdir, char **ret, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        int r = cop_msg_get_str(m, tag, 0, &text);

        if (r == -ENOENT && tag == COP_TAG_PATH2)
                return 0;
        if (r == -ENOENT || (r == 0 && !text[0]))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the path is empty");
        if (r == -EBADMSG)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the path has a NUL byte inside");
        if (r < 0)
                return cop_error_errno(err, -r, "the path");
        if (strlen(text) > PATH_BYTES_MAX)
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_bad_request, "the path is longer than %d bytes",
                                     PATH_BYTES_MAX);
        *ret = absolute_path(workdir, text);
        return *ret ? 0 : cop_error_errno(err, ENOMEM, "the path");
}

int cop_file_parse(const struct cop_msg *m, const char *workdir, struct cop_file_request *ret, struct cop_error *err)
{
        struct cop_file_request *q = ret;
        int r;

        *q = (struct cop_file_request){.data_fd = m->fd_count > 0 ? m->fds[0] : -EBADF, .result_fd = -EBADF};
        cop_msg_init(&q->reply, COP_WIRE_REPLY, m->id);
        q->op = (unsigned)cop_msg_u64_or(m, COP_TAG_OP, 0);
        q->flags = cop_msg_u64_or(m, COP_TAG_FLAGS, 0);
        q->mode = (mode_t)(cop_msg_u64_or(m, COP_TAG_MODE, 0) & MODE_MASK);
        q->has_offset = cop_msg_get_u64(m, COP_TAG_OFFSET, &q->offset) == 0;
        q->length = cop_msg_u64_or(m, COP_TAG_LENGTH, q->op == COP_FILE_READ ? 0 : UINT64_MAX);
        if (q->op == COP_FILE_READ && q->length == 0)
                q->length = UINT64_MAX;
        q->depth = cop_msg_u64_or(m, COP_TAG_DEPTH, 1);
        q->count = cop_msg_u64_or(m, COP_TAG_COUNT, 0);
        if (q->offset > INT64_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_range_invalid, "the offset is too large");
        if (q->count == 0)
                q->count = COP_FILE_LIST_DEFAULT;
        q->count = MIN_OF(q->count, (uint64_t)COP_FILE_LIST_MAX);
        if (q->depth == 0)
                q->depth = 1;
        r = get_path(m, COP_TAG_PATH, workdir, &q->path, err);
        if (r == 0)
                r = get_path(m, COP_TAG_PATH2, workdir, &q->path2, err);
        if (r == 0 && q->op == COP_FILE_MOVE && !q->path2)
                r = cop_error_set(err, EINVAL, COP_ERR_bad_request, "a move needs a target path");
        return r;
}

void cop_file_request_done(struct cop_file_request *q)
{
        free(q->path);
        free(q->path2);
        cop_msg_done(&q->reply);
}

/* -- shared ----------------------------------------------------------------------------------------------------------
 */

static enum cop_err_code code_of(int errnum)
{
        switch (errnum) {
        case ENOENT:
                return COP_ERR_file_not_found;
        case EACCES:
        case EPERM:
        case EROFS:
                return COP_ERR_file_access;
        case EEXIST:
        case ENOTEMPTY:
                return COP_ERR_file_exists;
        case EISDIR:
        case ENOTDIR:
        case ELOOP:
        case ENXIO:
        case ENODEV:
                return COP_ERR_file_type;
        case EBUSY:
        case ETXTBSY:
                return COP_ERR_in_use;
        case ENAMETOOLONG:
        case EINVAL:
                return COP_ERR_bad_request;
        case ENOSPC:
        case EDQUOT:
                return COP_ERR_disk_full;
        case ENOMEM:
                return COP_ERR_no_memory;
        case EMFILE:
        case ENFILE:
                return COP_ERR_too_many;
        default:
                return COP_ERR_io_error;
        }
}

int cop_file_error(struct cop_error *err, int errnum, const char *doing, const char *path)
{
        if (errnum == ENOSPC || errnum == EDQUOT)
                return cop_error_set(err, errnum, COP_ERR_disk_full,
                                     "%s %.600s: the disk of the sandbox is full; delete files or raise its limit",
                                     doing, path);
        return cop_error_set(err, errnum, code_of(errnum), "%s %.600s: %s", doing, path, strerror(errnum));
}

void cop_file_progress(void)
{
        alarm(cop_file_stall_seconds);
}

void cop_file_add_stat(struct cop_msg *m, const struct stat *st)
{
        int64_t mtime = (int64_t)st->st_mtim.tv_sec;

        cop_msg_add_str(m, COP_TAG_TYPE, cop_file_type_name(st->st_mode));
        cop_msg_add_u64(m, COP_TAG_SIZE, st->st_size > 0 ? (uint64_t)st->st_size : 0);
        cop_msg_add_u64(m, COP_TAG_MODE, st->st_mode & MODE_MASK);
        cop_msg_add_u64(m, COP_TAG_UID, st->st_uid);
        cop_msg_add_u64(m, COP_TAG_GID, st->st_gid);
        /* Any program can set a time outside of what µs since 1970 can hold. */
        if (mtime < 0)
                mtime = 0;
        mtime = MIN_OF(mtime, (int64_t)(INT64_MAX / 1000000 - 1));
        cop_msg_add_u64(m, COP_TAG_MTIME, (uint64_t)mtime * USEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec / 1000);
}

void cop_file_send_reply(struct cop_file_request *q)
{
        if (!q->replied)
                cop_msg_send(q->result_fd, &q->reply);
        q->replied = true;
}

int cop_file_open_regular(int at_fd, const char *path, int flags, struct stat *ret_st, struct cop_error *err)
{
        const char *doing = (flags & O_ACCMODE) == O_RDONLY ? "reading" : "writing";
        _cleanup_close_ int path_fd = openat(at_fd, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW));
        struct stat before;

        if (path_fd < 0 || fstat(path_fd, &before) < 0)
                return cop_file_error(err, errno, doing, path);
        if (!S_ISREG(before.st_mode))
                return cop_error_set(err, S_ISDIR(before.st_mode) ? EISDIR : EINVAL, COP_ERR_file_type,
                                     "%s %.600s: it is a %s, not a regular file", doing, path,
                                     cop_file_type_name(before.st_mode));
        _cleanup_close_ int fd = openat(at_fd, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, ret_st) < 0)
                return cop_file_error(err, errno, doing, path);
        if (ret_st->st_dev != before.st_dev || ret_st->st_ino != before.st_ino)
                return cop_error_set(err, EAGAIN, COP_ERR_io_error, "%s %.600s: it was replaced meanwhile; try again",
                                     doing, path);
        return TAKE_FD(fd);
}

int cop_file_send_data(const struct cop_file_request *q, const void *data, size_t n, struct cop_error *err)
{
        const char *p = data;

        while (n > 0) {
                ssize_t done = send(q->data_fd, p, n, MSG_NOSIGNAL);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0 && (errno == EPIPE || errno == ECONNRESET))
                        return cop_error_set(err, errno, COP_ERR_cancelled, "the reader of %.600s went away", q->path);
                if (done < 0)
                        return cop_file_error(err, errno, "sending", q->path);
                cop_file_progress();
                p += done;
                n -= (size_t)done;
        }
        return 0;
}

ssize_t cop_file_recv_data(const struct cop_file_request *q, void *data, size_t n, struct cop_error *err)
{
        ssize_t done;

        do
                done = recv(q->data_fd, data, n, 0);
        while (done < 0 && errno == EINTR);
        if (done < 0 && errno != ECONNRESET)
                return cop_file_error(err, errno, "receiving the data of", q->path);
        cop_file_progress();
        if (done > 0)
                return done;
        /* A writer that is through shuts its side down and waits for the reply; one that gave up or died closed all. */
        struct pollfd p = {.fd = q->data_fd};
        if (done < 0 || (poll(&p, 1, 0) == 1 && (p.revents & POLLHUP)))
                return cop_error_set(err, ECANCELED, COP_ERR_cancelled, "the writer of %.600s went away", q->path);
        return 0;
}

char *cop_file_parent(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash && slash > path ? strndup(path, (size_t)(slash - path)) : strdup("/");
}

/* 1 when path itself was made, 0 when it was there. */
static int make_folders(const char *path, struct cop_error *err)
{
        _cleanup_free_ char *copy = strdup(path);
        int made = 0;
        struct stat st;

        if (!copy)
                return cop_error_errno(err, ENOMEM, "creating %s", path);
        for (char *p = strchrnul(copy + 1, '/');; p = strchrnul(p + 1, '/')) {
                char saved = *p;
                *p = '\0';
                made = mkdir(copy, 0777) == 0;
                if (!made && errno != EEXIST)
                        return cop_file_error(err, errno, "creating folder", copy);
                *p = saved;
                if (!saved)
                        break;
        }
        if (stat(path, &st) < 0)
                return cop_file_error(err, errno, "creating folder", path);
        return S_ISDIR(st.st_mode) ? made : cop_file_error(err, ENOTDIR, "creating folder", path);
}

int cop_file_make_parents(const char *path, struct cop_error *err)
{
        _cleanup_free_ char *parent = cop_file_parent(path);

        if (!parent)
                return cop_error_errno(err, ENOMEM, "creating %s", path);
        int r = make_folders(parent, err);
        return r < 0 ? r : 0;
}

/* -- small operations ------------------------------------------------------------------------------------------------
 */

static int add_target(struct cop_file_request *q, const struct stat *st)
{
        char target[PATH_BYTES_MAX];

        if (!S_ISLNK(st->st_mode))
                return 0;
        ssize_t n = readlink(q->path, target, sizeof(target));
        if (n < 0)
                return -errno;
        cop_msg_add_bytes(&q->reply, COP_TAG_TARGET, target, (size_t)n);
        return 0;
}

static int do_stat(struct cop_file_request *q, struct cop_error *err)
{
        struct stat st;
        int r;

        if (q->flags & COP_FILE_SHA256) {
                r = cop_file_hash(q, &st, err);
                if (r < 0)
                        return r;
        } else {
                if (fstatat(AT_FDCWD, q->path, &st, q->flags & COP_FILE_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) < 0)
                        return cop_file_error(err, errno, "looking at", q->path);
                r = add_target(q, &st);
                if (r < 0)
                        return cop_file_error(err, -r, "looking at", q->path);
        }
        cop_file_add_stat(&q->reply, &st);
        return 0;
}

static int do_mkdir(struct cop_file_request *q, struct cop_error *err)
{
        struct stat st;
        int made = 1;

        if (q->flags & COP_FILE_PARENTS) {
                made = make_folders(q->path, err);
                if (made < 0)
                        return made;
        } else if (mkdir(q->path, 0777) < 0) {
                return cop_file_error(err, errno, "creating folder", q->path);
        }
        /* Exactly the mode that was asked for, without the umask; never that of a folder that was there. */
        if ((made > 0 && q->mode && chmod(q->path, q->mode) < 0) || stat(q->path, &st) < 0)
                return cop_file_error(err, errno, "creating folder", q->path);
        cop_file_add_stat(&q->reply, &st);
        return 0;
}

static int do_remove(struct cop_file_request *q, struct cop_error *err)
{
        struct stat st, root;

        if (lstat(q->path, &st) < 0)
                return cop_file_error(err, errno, "removing", q->path);
        if (stat("/", &root) == 0 && st.st_dev == root.st_dev && st.st_ino == root.st_ino)
                return cop_error_set(err, EBUSY, COP_ERR_bad_request, "the root folder of a sandbox cannot be removed");
        cop_file_add_stat(&q->reply, &st);
        if (!S_ISDIR(st.st_mode))
                return unlink(q->path) == 0 ? 0 : cop_file_error(err, errno, "removing", q->path);
        if (q->flags & COP_FILE_RECURSIVE)
                return cop_tree_remove(AT_FDCWD, q->path, err);
        if (rmdir(q->path) == 0)
                return 0;
        if (errno == ENOTEMPTY || errno == EEXIST)
                return cop_error_set(err, ENOTEMPTY, COP_ERR_file_exists,
                                     "removing %.600s: the folder is not empty; ask for a recursive removal", q->path);
        return cop_file_error(err, errno, "removing", q->path);
}

static int run(struct cop_file_request *q, struct cop_error *err)
{
        switch (q->op) {
        case COP_FILE_STAT:
                return do_stat(q, err);
        case COP_FILE_MKDIR:
                return do_mkdir(q, err);
        case COP_FILE_REMOVE:
                return do_remove(q, err);
        case COP_FILE_MOVE:
                return cop_file_move(q, err);
        default:
                break;
        }
        if (q->op < COP_FILE_STAT || q->op > COP_FILE_UNTAR)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "there is no file operation %u", q->op);
        if (q->data_fd < 0)
                return cop_error_set(err, EBADF, COP_ERR_internal, "file operation %u came without a data socket",
                                     q->op);
        switch (q->op) {
        case COP_FILE_READ:
                return cop_file_read(q, err);
        case COP_FILE_WRITE:
                return cop_file_write(q, err);
        case COP_FILE_LIST:
                return cop_file_list(q, err);
        case COP_FILE_TAR:
                return cop_file_tar(q, err);
        default:
                return cop_file_untar(q, err);
        }
}

void cop_file_run(struct cop_file_request *q)
{
        struct cop_error err;

        cop_file_progress();
        cop_msg_add_str(&q->reply, COP_TAG_PATH, q->path);
        if (run(q, &err) < 0) {
                uint32_t id = q->reply.id;
                cop_msg_done(&q->reply);
                cop_msg_init(&q->reply, COP_WIRE_REPLY, id);
                cop_msg_add_error(&q->reply, &err);
        }
        cop_file_send_reply(q);
}
