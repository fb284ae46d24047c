/* TAR and UNTAR: a folder tree as an archive through the data socket.
 *
 * An archive that is extracted is foreign.  Every entry's name is cleaned ("..", absolute: refused), and its folder is
 * reached from the target one component at a time with O_NOFOLLOW, so that neither a link in the archive nor one that
 * was there leads elsewhere.  What is in the way is unlinked, never followed or written through.  Owners in the archive
 * are ignored: everything belongs to the user; set-id bits are dropped.  A folder gets its mode at the end, since one
 * without w would keep its own files out.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ops.h"
#include "sandbox/wire.h"
#include "base/tar.h"
#include "walk.h"

#define TARGET_MAX COP_TAR_NAME_MAX
#define FOLDERS_MAX (8u << 20) /* bytes of names of folders whose mode comes last */
#define PERMISSIONS 0777

/* -- TAR ----------------------------------------------------------------------------------------------------------- */

struct packing {
        struct cop_file_request *q; /* borrowed */
        char *base;                 /* owned: last part of the path */
        char *chunk;                /* owned */
};

static void packing_done(struct packing *p)
{
        free(p->base);
        free(p->chunk);
}

static int send_header(struct packing *p, const char *name, const char *target, const struct stat *st,
                       struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(6 * COP_TAR_PAX_MAX);
        struct cop_tar_entry e = {.type = S_ISDIR(st->st_mode)   ? COP_TAR_FOLDER
                                          : S_ISLNK(st->st_mode) ? COP_TAR_SYMLINK
                                                                 : COP_TAR_FILE,
                                  .name = name,
                                  .target = target,
                                  .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
                                  .mode = st->st_mode & 07777,
                                  .uid = st->st_uid,
                                  .gid = st->st_gid,
                                  .mtime = MAX_OF(st->st_mtim.tv_sec, (time_t)0)};
        int r = cop_tar_add_header(&out, &e);

        return r < 0 ? cop_error_errno(err, -r, "archiving %.600s", name)
                     : cop_file_send_data(p->q, out.data, out.len, err);
}

/* Exactly the size in the header: bytes that were appended since are left out, and a file that became shorter ends the
 * archive, because zeros would look like its content. */
static int pack_file(struct packing *p, int dir_fd, const char *file, const char *name, struct cop_error *err)
{
        static const char zeros[COP_TAR_BLOCK];
        struct stat st;
        _cleanup_close_ int fd = cop_file_open_regular(dir_fd, file, O_RDONLY | O_NOFOLLOW, &st, err);

        if (fd == -ENOENT)
                return 0; /* vanished since it was listed */
        if (fd < 0)
                return fd;
        int r = send_header(p, name, NULL, &st, err);
        for (uint64_t left = (uint64_t)st.st_size; r == 0 && left > 0;) {
                ssize_t n = read(fd, p->chunk, MIN_OF((uint64_t)COP_FILE_CHUNK, left));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cop_file_error(err, errno, "archiving", name);
                if (n == 0)
                        return cop_error_set(err, EAGAIN, COP_ERR_io_error,
                                             "%.600s became shorter while it was archived; try again", name);
                r = cop_file_send_data(p->q, p->chunk, (size_t)n, err);
                left -= (uint64_t)n;
        }
        return r < 0 ? r : cop_file_send_data(p->q, zeros, cop_tar_padding((uint64_t)st.st_size), err);
}

static int pack_any(struct packing *p, int dir_fd, const char *file, const char *name, const struct stat *st,
                    struct cop_error *err)
{
        char target[TARGET_MAX + 1];

        if (S_ISREG(st->st_mode))
                return pack_file(p, dir_fd, file, name, err);
        if (S_ISDIR(st->st_mode)) {
                char *folder = NULL;
                if (asprintf(&folder, "%s/", name) < 0)
                        return cop_error_errno(err, ENOMEM, "archiving %s", name);
                int r = send_header(p, folder, NULL, st, err);
                free(folder);
                return r;
        }
        if (!S_ISLNK(st->st_mode))
                return 0; /* sockets, FIFOs, devices: they hold no data */
        ssize_t n = readlinkat(dir_fd, file, target, sizeof(target) - 1);
        if (n <= 0)
                return n == 0 || errno == ENOENT || errno == EINVAL ? 0 : cop_file_error(err, errno, "archiving", name);
        target[n] = '\0';
        return send_header(p, name, target, st, err);
}

static int pack_entry(const struct cop_walk_entry *entry, void *userdata, struct cop_error *err)
{
        struct packing *p = userdata;
        char *name = NULL;

        if (asprintf(&name, "%s%s%s", p->base, p->base[0] ? "/" : "", entry->path) < 0)
                return cop_error_errno(err, ENOMEM, "archiving %.600s", entry->path);
        int r = strlen(name) > COP_TAR_NAME_MAX - 1
                        ? cop_error_set(err, ENAMETOOLONG, COP_ERR_unsupported,
                                        "archiving %.300s…: the path has more than %d bytes", name,
                                        COP_TAR_NAME_MAX - 1)
                        : pack_any(p, entry->dir_fd, entry->name, name, &entry->st, err);
        free(name);
        return r;
}

int cop_file_tar(struct cop_file_request *q, struct cop_error *err)
{
        static const char end[2 * COP_TAR_BLOCK];
        __attribute__((cleanup(packing_done))) struct packing p = {.q = q, .chunk = malloc(COP_FILE_CHUNK)};
        struct cop_walk walk = {.fn = pack_entry, .userdata = &p, .depth = UINT64_MAX};
        struct stat st;
        int r;

        const char *base = strrchr(q->path, '/') + 1;
        if (strcmp(base, "..") == 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "archiving %.600s: a path ending in .. has no name", q->path);
        p.base = strdup(base);
        if (!p.base || !p.chunk)
                return cop_error_errno(err, ENOMEM, "archiving %s", q->path);
        if (stat(q->path, &st) < 0)
                return cop_file_error(err, errno, "archiving", q->path);
        if (S_ISDIR(st.st_mode)) {
                _cleanup_close_ int fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        return cop_file_error(err, errno, "archiving", q->path);
                r = p.base[0] ? pack_any(&p, AT_FDCWD, q->path, p.base, &st, err) : 0;
                if (r == 0)
                        r = cop_walk_tree(&walk, fd, q->path, err);
                if (r == 0 && walk.truncated)
                        r = cop_error_set(err, ELOOP, COP_ERR_unsupported,
                                          "archiving %.600s: more than %d folders deep", q->path, COP_WALK_LEVELS_MAX);
        } else if (S_ISREG(st.st_mode)) {
                _cleanup_free_ char *real = realpath(q->path, NULL); /* a link to a file is archived as the file */
                r = pack_file(&p, AT_FDCWD, real ? real : q->path, p.base, err);
        } else {
                r = cop_error_set(err, EINVAL, COP_ERR_file_type,
                                  "archiving %.600s: neither a folder nor a regular file", q->path);
        }
        if (r == 0)
                r = cop_file_send_data(q, end, sizeof(end), err);
        if (r == 0)
                cop_file_add_stat(&q->reply, &st);
        return r;
}

/* -- UNTAR --------------------------------------------------------------------------------------------------------- */

struct unpacking {
        struct cop_file_request *q; /* borrowed */
        struct cop_tar_reader *reader;
        int root_fd;
        char *chunk;
        struct cop_buf folders; /* mode_t and name with NUL, for the end */
        uint64_t count;
};

static void unpacking_done(struct unpacking *u)
{
        cop_tar_reader_free(u->reader);
        cop_close(u->root_fd);
        free(u->chunk);
        cop_buf_done(&u->folders);
}

static ssize_t read_archive(void *userdata, void *buf, size_t n, struct cop_error *err)
{
        struct unpacking *u = userdata;

        return cop_file_recv_data(u->q, buf, n, err);
}

/* The folder that holds `name` (clean), made where missing; *ret_last is the last part.  Returns a descriptor. */
static int open_parent(struct unpacking *u, char *name, const char **ret_last, bool make, struct cop_error *err)
{
        int fd = fcntl(u->root_fd, F_DUPFD_CLOEXEC, 3);

        *ret_last = name;
        for (char *slash; fd >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
                *slash = '\0';
                int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (next < 0 && errno == ENOENT && make && (mkdirat(fd, name, PERMISSIONS) == 0 || errno == EEXIST))
                        next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                int saved = errno;
                cop_close(fd);
                if (next < 0)
                        return saved == ELOOP || saved == ENOTDIR ? cop_error_set(err, ENOTDIR, COP_ERR_file_type,
                                                                                  "extracting into %.300s: \"%.300s\" "
                                                                                  "is a link or file where the archive "
                                                                                  "has a folder",
                                                                                  u->q->path, name)
                                                                  : cop_file_error(err, saved, "extracting", name);
                fd = next;
        }
        if (fd < 0)
                return cop_file_error(err, errno, "extracting", u->q->path);
        *ret_last = name;
        return fd;
}

static int put_file(struct unpacking *u, int dir_fd, const char *last, const struct cop_tar_entry *e,
                    struct cop_error *err)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = (time_t)e->mtime}};
        _cleanup_close_ int fd = openat(dir_fd, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        ssize_t n;
        int r = 0;

        if (fd < 0)
                return cop_file_error(err, errno, "extracting", e->name);
        while (r == 0 && (n = cop_tar_data(u->reader, u->chunk, COP_FILE_CHUNK, err)) != 0) {
                r = n < 0 ? (int)n : cop_write_all(fd, u->chunk, (size_t)n);
                if (n > 0 && r < 0)
                        cop_file_error(err, -r, "extracting", e->name);
        }
        if (r < 0) {
                unlinkat(dir_fd, last, 0); /* half a file looks like a whole one */
                return r;
        }
        fchmod(fd, e->mode & PERMISSIONS);
        futimens(fd, times);
        return 0;
}

static int put_folder(struct unpacking *u, int dir_fd, const char *last, const char *name, mode_t mode,
                      struct cop_error *err)
{
        struct stat st;

        if (mkdirat(dir_fd, last, 0700) < 0) {
                if (errno != EEXIST || fstatat(dir_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return cop_file_error(err, errno, "extracting", name);
                return S_ISDIR(st.st_mode) ? 0
                                           : cop_error_set(err, ENOTDIR, COP_ERR_file_type,
                                                           "extracting %.600s: a file or link has this name", name);
        }
        if (cop_buf_add(&u->folders, &mode, sizeof(mode)) < 0 || cop_buf_add(&u->folders, name, strlen(name) + 1) < 0)
                return cop_error_set(err, E2BIG, COP_ERR_too_many, "the archive has too many folders; split it");
        return 0;
}

static int put_hardlink(struct unpacking *u, int dir_fd, const char *last, const struct cop_tar_entry *e,
                        struct cop_error *err)
{
        char target[COP_TAR_NAME_MAX + 1];
        const char *target_last;

        if (cop_tar_clean_name(e->target, target) != 1)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "%.300s in the archive links to \"%.300s\", outside it", e->name, e->target);
        _cleanup_close_ int target_fd = open_parent(u, target, &target_last, false, err);
        if (target_fd < 0)
                return target_fd;
        return linkat(target_fd, target_last, dir_fd, last, 0) == 0 ? 0
                                                                    : cop_file_error(err, errno, "extracting", e->name);
}

static int put_entry(struct unpacking *u, const struct cop_tar_entry *e, struct cop_error *err)
{
        char name[COP_TAR_NAME_MAX + 1], parts[COP_TAR_NAME_MAX + 1];
        const char *last;
        int r = cop_tar_clean_name(e->name, name);

        if (r < 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "the name \"%.300s\" in the archive leads out of the target or is too long",
                                     e->name);
        if (r == 0) /* "./", the target itself */
                return e->type == COP_TAR_FOLDER ? 0
                                                 : cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                                                 "an entry in the archive has the name of the target");
        if (e->type == COP_TAR_SYMLINK && !cop_tar_link_stays(name, e->target))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "%.300s in the archive links to \"%.300s\", outside it", e->name, e->target);
        memcpy(parts, name, strlen(name) + 1);
        _cleanup_close_ int dir_fd = open_parent(u, parts, &last, true, err);
        if (dir_fd < 0)
                return dir_fd;
        if (e->type == COP_TAR_FOLDER)
                return put_folder(u, dir_fd, last, name, e->mode & PERMISSIONS, err);
        if (unlinkat(dir_fd, last, 0) < 0 && errno != ENOENT)
                return cop_file_error(err, errno, "extracting over", e->name);
        if (e->type == COP_TAR_HARDLINK)
                return put_hardlink(u, dir_fd, last, e, err);
        if (e->type == COP_TAR_SYMLINK)
                return symlinkat(e->target, dir_fd, last) == 0 ? 0 : cop_file_error(err, errno, "extracting", e->name);
        return put_file(u, dir_fd, last, e, err);
}

/* Deepest last in the list and first here: a folder without x would hide those below it. */
static void set_folder_modes(struct unpacking *u)
{
        _cleanup_free_ size_t *starts = NULL;
        size_t n = 0, allocated = 0;

        for (size_t at = 0; at < u->folders.len;) {
                if (n == allocated) {
                        allocated = allocated ? allocated * 2 : 64;
                        size_t *grown = reallocarray(starts, allocated, sizeof(*starts));
                        if (!grown)
                                return;
                        starts = grown;
                }
                starts[n++] = at;
                at += sizeof(mode_t);
                at += strlen(u->folders.data + at) + 1;
        }
        while (n > 0) {
                char *record = u->folders.data + starts[--n];
                const char *last;
                mode_t mode;
                memcpy(&mode, record, sizeof(mode));
                _cleanup_close_ int dir_fd = open_parent(u, record + sizeof(mode), &last, false, NULL);
                _cleanup_close_ int fd =
                        dir_fd >= 0 ? openat(dir_fd, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -EBADF;
                if (fd >= 0)
                        fchmod(fd, mode);
        }
}

int cop_file_untar(struct cop_file_request *q, struct cop_error *err)
{
        __attribute__((cleanup(unpacking_done))) struct unpacking u = {
                .q = q, .root_fd = -EBADF, .chunk = malloc(COP_FILE_CHUNK), .folders.max = FOLDERS_MAX};
        struct cop_tar_entry e;
        struct stat st;
        ssize_t n = 0;
        int r = 0;

        if (!u.chunk)
                return cop_error_errno(err, ENOMEM, "extracting into %s", q->path);
        if (q->flags & COP_FILE_PARENTS) {
                r = cop_file_make_parents(q->path, err);
                if (r == 0 && mkdir(q->path, PERMISSIONS) < 0 && errno != EEXIST)
                        r = cop_file_error(err, errno, "extracting into", q->path);
        }
        if (r == 0)
                r = cop_tar_reader_new(read_archive, &u, &u.reader, err);
        if (r < 0)
                return r;
        u.root_fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (u.root_fd < 0 || fstat(u.root_fd, &st) < 0)
                return cop_file_error(err, errno, "extracting into", q->path);
        while ((r = cop_tar_next(u.reader, &e, err)) > 0) {
                r = put_entry(&u, &e, err);
                if (r < 0)
                        break;
                u.count++;
        }
        set_folder_modes(&u); /* also after an error: what was extracted stays, and shall be usable */
        while (r == 0 && (n = cop_file_recv_data(q, u.chunk, COP_FILE_CHUNK, err)) > 0)
                ; /* zeros up to the writer's record size */
        if (r < 0 || n < 0)
                return r < 0 ? r : (int)n;
        cop_file_add_stat(&q->reply, &st);
        cop_msg_add_u64(&q->reply, COP_TAG_COUNT, u.count);
        return 0;
}
