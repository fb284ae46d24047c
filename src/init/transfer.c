/* READ, WRITE and hashes: the bytes of one regular file. */
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The streaming functions of libcrypto's low level: with them, 24 KiB of libcrypto.a end up in this static program;
 * with EVP and its providers, several MiB (doc/adr/0003-hash-in-init.md). */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "ops.h"
#include "sandbox/wire.h"

#define VIRTUAL_MAX (1024 * 1024) /* of a file of /proc or /sys, whose size is only known after reading it */
#define LINKS_MAX 40              /* as the kernel */

static void add_digest(struct cop_msg *m, SHA256_CTX *hash)
{
        static const char digits[] = "0123456789abcdef";
        unsigned char digest[SHA256_DIGEST_LENGTH];
        char hex[2 * SHA256_DIGEST_LENGTH];

        SHA256_Final(digest, hash);
        for (size_t i = 0; i < sizeof(digest); i++) {
                hex[2 * i] = digits[digest[i] >> 4];
                hex[2 * i + 1] = digits[digest[i] & 15];
        }
        cop_msg_add_bytes(m, COP_TAG_SHA256, hex, sizeof(hex));
}

static ssize_t read_at(int fd, void *data, size_t n, uint64_t offset)
{
        ssize_t done;

        do
                done = pread(fd, data, n, (off_t)offset);
        while (done < 0 && errno == EINTR);
        return done < 0 ? -errno : done;
}

/* -- STAT with a hash ------------------------------------------------------------------------------------------------
 */

int cop_file_hash(struct cop_file_request *q, struct stat *ret_st, struct cop_error *err)
{
        _cleanup_free_ char *chunk = malloc(COP_FILE_CHUNK);
        int flags = O_RDONLY | (q->flags & COP_FILE_NOFOLLOW ? O_NOFOLLOW : 0);
        _cleanup_close_ int fd = cop_file_open_regular(AT_FDCWD, q->path, flags, ret_st, err);
        uint64_t at = 0;
        SHA256_CTX hash;
        ssize_t n = 1;

        if (fd < 0)
                return fd;
        if (!chunk)
                return cop_error_errno(err, ENOMEM, "reading %s", q->path);
        SHA256_Init(&hash);
        /* Only the size that was seen: a file that grows as fast as it is read would never end. */
        while (n > 0 && at < (uint64_t)ret_st->st_size) {
                n = read_at(fd, chunk, MIN_OF((uint64_t)COP_FILE_CHUNK, (uint64_t)ret_st->st_size - at), at);
                if (n < 0)
                        return cop_file_error(err, (int)-n, "reading", q->path);
                SHA256_Update(&hash, chunk, (size_t)n);
                cop_file_progress();
                at += (uint64_t)n;
        }
        if (at < (uint64_t)ret_st->st_size)
                return cop_error_set(err, EAGAIN, COP_ERR_io_error,
                                     "%.600s became shorter while it was read; try again", q->path);
        add_digest(&q->reply, &hash);
        return 0;
}

/* -- READ ------------------------------------------------------------------------------------------------------------
 */

static bool is_virtual(int fd, const struct stat *st)
{
        struct statfs fs;

        return st->st_size == 0 ||
               (fstatfs(fd, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
                                          fs.f_type == CGROUP2_SUPER_MAGIC || fs.f_type == CGROUP_SUPER_MAGIC));
}

static int read_virtual(const struct cop_file_request *q, int fd, struct cop_buf *content, struct cop_error *err)
{
        ssize_t n;

        do
                n = cop_buf_read(content, fd, COP_FILE_CHUNK);
        while (n > 0 || n == -EINTR);
        if (n == -EMSGSIZE)
                return cop_error_set(err, EFBIG, COP_ERR_io_error,
                                     "%.600s has no size, and more than %d bytes come out of it", q->path, VIRTUAL_MAX);
        return n < 0 ? cop_file_error(err, (int)-n, "reading", q->path) : 0;
}

static int announce(struct cop_file_request *q, struct stat *st, struct cop_error *err)
{
        uint64_t size = (uint64_t)st->st_size;

        if (q->offset > size)
                return cop_error_set(err, EINVAL, COP_ERR_range_invalid,
                                     "%.600s has %llu bytes; offset %llu is behind its end", q->path,
                                     (unsigned long long)size, (unsigned long long)q->offset);
        q->length = MIN_OF(q->length, size - q->offset);
        cop_file_add_stat(&q->reply, st);
        cop_msg_add_u64(&q->reply, COP_TAG_LENGTH, q->length);
        cop_file_send_reply(q);
        return 0;
}

int cop_file_read(struct cop_file_request *q, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf content = COP_BUF(VIRTUAL_MAX);
        _cleanup_free_ char *chunk = malloc(COP_FILE_CHUNK);
        int flags = O_RDONLY | (q->flags & COP_FILE_NOFOLLOW ? O_NOFOLLOW : 0), r;
        struct stat st;
        _cleanup_close_ int fd = cop_file_open_regular(AT_FDCWD, q->path, flags, &st, err);

        if (fd < 0)
                return fd;
        if (!chunk)
                return cop_error_errno(err, ENOMEM, "reading %s", q->path);
        if (is_virtual(fd, &st)) {
                r = read_virtual(q, fd, &content, err);
                if (r < 0)
                        return r;
                st.st_size = (off_t)content.len;
                r = announce(q, &st, err);
                return r < 0 ? r : cop_file_send_data(q, content.data + q->offset, q->length, err);
        }
        r = announce(q, &st, err);
        while (r == 0 && q->length > 0) {
                ssize_t n = read_at(fd, chunk, MIN_OF((uint64_t)COP_FILE_CHUNK, q->length), q->offset);
                if (n <= 0) /* became shorter, or cannot be read: the caller sees fewer bytes than announced */
                        break;
                r = cop_file_send_data(q, chunk, (size_t)n, err);
                q->offset += (uint64_t)n;
                q->length -= (uint64_t)n;
        }
        return r;
}

/* -- WRITE -----------------------------------------------------------------------------------------------------------
 */

/* Bytes from the socket into fd, from offset on.  Exactly q->length of them, or until the writer is through. */
static int receive_into(struct cop_file_request *q, int fd, struct cop_error *err)
{
        _cleanup_free_ char *chunk = malloc(COP_FILE_CHUNK);
        uint64_t left = q->length, at = q->offset;
        SHA256_CTX hash;

        if (!chunk)
                return cop_error_errno(err, ENOMEM, "writing %s", q->path);
        SHA256_Init(&hash);
        while (left > 0) {
                ssize_t n = cop_file_recv_data(q, chunk, MIN_OF(left, (uint64_t)COP_FILE_CHUNK), err);
                if (n < 0)
                        return (int)n;
                if (n == 0)
                        break;
                for (ssize_t done = 0; done < n;) {
                        ssize_t put = pwrite(fd, chunk + done, (size_t)(n - done), (off_t)(at + (uint64_t)done));
                        if (put < 0 && errno != EINTR)
                                return cop_file_error(err, errno, "writing", q->path);
                        done += put > 0 ? put : 0;
                }
                if (q->flags & COP_FILE_SHA256)
                        SHA256_Update(&hash, chunk, (size_t)n);
                at += (uint64_t)n;
                left -= q->length == UINT64_MAX ? 0 : (uint64_t)n;
        }
        if (q->length != UINT64_MAX && left > 0)
                return cop_error_set(err, ECANCELED, COP_ERR_cancelled,
                                     "writing %.600s: %llu bytes were announced, %llu fewer came", q->path,
                                     (unsigned long long)q->length, (unsigned long long)left);
        if (q->flags & COP_FILE_SHA256)
                add_digest(&q->reply, &hash);
        return 0;
}

/* Follows links at the end of *path, so that the file is replaced and not the link.  The kernel follows those before.
 */
static int resolve_last(char **path, struct cop_error *err)
{
        char target[PATH_MAX];

        for (int i = 0; i < LINKS_MAX; i++) {
                ssize_t n = readlink(*path, target, sizeof(target) - 1);
                if (n < 0)
                        return errno == EINVAL || errno == ENOENT ? 0 : cop_file_error(err, errno, "writing", *path);
                target[n] = '\0';
                _cleanup_free_ char *parent = cop_file_parent(*path);
                char *next = NULL;
                if (!parent ||
                    asprintf(&next, "%s%s%s", target[0] == '/' ? "" : parent, target[0] == '/' ? "" : "/", target) < 0)
                        return cop_error_errno(err, ENOMEM, "writing %s", *path);
                free(*path);
                *path = next;
        }
        return cop_file_error(err, ELOOP, "writing", *path);
}

/* A file without a name, which vanishes by itself when this worker is killed; where the file system cannot do that, one
 * with a name.  *ret_name is NULL for the former. */
static int open_temporary(const char *parent, const char *path, char **ret_name, struct cop_error *err)
{
        char random[17];
        int fd = open(parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

        if (fd >= 0)
                return fd;
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
                return cop_file_error(err, errno, "writing", path);
        if (asprintf(ret_name, "%s/.%s.coppice-tmp", parent, cop_id_hex(random, 8)) < 0) {
                *ret_name = NULL;
                return cop_error_errno(err, ENOMEM, "writing %s", path);
        }
        fd = open(*ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        return fd >= 0 ? fd : cop_file_error(err, errno, "writing", path);
}

/* Gives the nameless file its name: at once when path is free, else beside it and then over it. */
static int put_in_place(const struct cop_file_request *q, int fd, const char *parent, char **name,
                        struct cop_error *err)
{
        char self[32], random[17];

        if (!*name) {
                snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
                if (linkat(AT_FDCWD, self, AT_FDCWD, q->path, AT_SYMLINK_FOLLOW) == 0)
                        return 0;
                if (errno != EEXIST || (q->flags & COP_FILE_EXCLUSIVE))
                        return cop_file_error(err, errno, "writing", q->path);
                if (asprintf(name, "%s/.%s.coppice-tmp", parent, cop_id_hex(random, 8)) < 0) {
                        *name = NULL;
                        return cop_error_errno(err, ENOMEM, "writing %s", q->path);
                }
                if (linkat(AT_FDCWD, self, AT_FDCWD, *name, AT_SYMLINK_FOLLOW) < 0)
                        return cop_file_error(err, errno, "writing", q->path);
        }
        int r = q->flags & COP_FILE_EXCLUSIVE ? renameat2(AT_FDCWD, *name, AT_FDCWD, q->path, RENAME_NOREPLACE)
                                              : rename(*name, q->path);
        return r == 0 ? 0 : cop_file_error(err, errno, "writing", q->path);
}

/* Owner and mode of the file that is replaced, or the mode asked for. */
static void set_owner_and_mode(const struct cop_file_request *q, int fd, const struct stat *old)
{
        mode_t mode = q->mode ? q->mode : old ? old->st_mode & 07777 : 0644;

        if (old && fchown(fd, old->st_uid, old->st_gid) < 0)
                mode &= (mode_t) ~(S_ISUID | S_ISGID); /* now it is ours, and would lend our rights */
        fchmod(fd, mode);
}

static int write_atomic(struct cop_file_request *q, struct stat *ret_st, struct cop_error *err)
{
        _cleanup_free_ char *parent = NULL, *name = NULL;
        struct stat old;
        int r;

        bool exists = lstat(q->path, &old) == 0;
        if (exists && (q->flags & COP_FILE_EXCLUSIVE))
                return cop_file_error(err, EEXIST, "writing", q->path);
        if (exists && !S_ISREG(old.st_mode))
                return cop_error_set(err, EISDIR, COP_ERR_file_type, "writing %.600s: it is not a regular file",
                                     q->path);
        if (exists && access(q->path, W_OK) < 0) /* a rename would not ask */
                return cop_file_error(err, errno, "writing", q->path);
        parent = cop_file_parent(q->path);
        if (!parent)
                return cop_error_errno(err, ENOMEM, "writing %s", q->path);
        _cleanup_close_ int fd = open_temporary(parent, q->path, &name, err);
        if (fd < 0)
                return fd;
        q->offset = 0;
        r = receive_into(q, fd, err);
        if (r == 0) {
                set_owner_and_mode(q, fd, exists ? &old : NULL);
                cop_file_progress();
                if (fsync(fd) < 0)
                        r = cop_file_error(err, errno, "writing", q->path);
        }
        if (r == 0)
                r = put_in_place(q, fd, parent, &name, err);
        if (r == 0 && fstat(fd, ret_st) < 0)
                r = cop_file_error(err, errno, "writing", q->path);
        if (r < 0 && name)
                unlink(name);
        return r;
}

static int write_direct(struct cop_file_request *q, struct stat *ret_st, struct cop_error *err)
{
        /* O_EXCL first: tells whether the file is ours to remove when the writing fails. */
        _cleanup_close_ int fd = open(q->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
        bool created = fd >= 0;

        if (fd < 0 && (errno != EEXIST || (q->flags & COP_FILE_EXCLUSIVE)))
                return cop_file_error(err, errno, "writing", q->path);
        if (fd < 0) {
                int flags = O_WRONLY | (q->flags & COP_FILE_NOFOLLOW ? O_NOFOLLOW : 0);
                fd = cop_file_open_regular(AT_FDCWD, q->path, flags, ret_st, err);
        }
        if (fd < 0)
                return fd;
        if (!created && !q->has_offset && ftruncate(fd, 0) < 0)
                return cop_file_error(err, errno, "writing", q->path);
        if (q->mode)
                fchmod(fd, q->mode);
        int r = receive_into(q, fd, err);
        if (r == 0 && fstat(fd, ret_st) < 0)
                r = cop_file_error(err, errno, "writing", q->path);
        if (r < 0 && created)
                unlink(q->path);
        return r;
}

int cop_file_write(struct cop_file_request *q, struct cop_error *err)
{
        struct stat st;
        int r = 0;

        if ((q->flags & COP_FILE_ATOMIC) && q->offset > 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "an atomic write replaces the whole file: no offset");
        if (q->flags & COP_FILE_PARENTS)
                r = cop_file_make_parents(q->path, err);
        if (r == 0 && !(q->flags & COP_FILE_NOFOLLOW))
                r = resolve_last(&q->path, err);
        if (r == 0)
                r = q->flags & COP_FILE_ATOMIC ? write_atomic(q, &st, err) : write_direct(q, &st, err);
        if (r < 0)
                return r;
        cop_file_add_stat(&q->reply, &st);
        return 0;
}
