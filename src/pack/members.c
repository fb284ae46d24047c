#include "pack/members.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/pack.h"

#define ATTRIBUTES_MAX 65536
#define RANGES_MAX 100000

/* -- ranges ---------------------------------------------------------------------------------------------------------- */

void cop_ranges_done(struct cop_ranges *r)
{
        cop_freep(&r->list);
        r->count = 0;
}

static int by_offset(const void *a, const void *b)
{
        const struct cop_range *x = a, *y = b;

        return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void join(struct cop_ranges *r, uint64_t gap)
{
        size_t n = 0;

        for (size_t i = 0; i < r->count; i++) {
                struct cop_range *last = n ? &r->list[n - 1] : NULL, *one = &r->list[i];
                uint64_t end = one->offset + one->length;
                if (!last || one->offset > last->offset + last->length + gap)
                        r->list[n++] = *one;
                else if (end > last->offset + last->length)
                        last->length = end - last->offset;
        }
        r->count = n;
}

void cop_ranges_tidy(struct cop_ranges *r)
{
        if (r->count > 1)
                qsort(r->list, r->count, sizeof(*r->list), by_offset);
        join(r, 0);
        for (uint64_t gap = 4096; r->count > RANGES_MAX; gap *= 2)
                join(r, gap);
}

static int add_range(struct cop_ranges *r, uint64_t offset, uint64_t length)
{
        if (r->count % 1024 == 0) {
                struct cop_range *list = reallocarray(r->list, r->count + 1024, sizeof(*list));
                if (!list)
                        return -ENOMEM;
                r->list = list;
        }
        r->list[r->count++] = (struct cop_range){offset, length};
        return 0;
}

/* A file with very many holes is cut into pieces by the first of them; the rest is read with its zeros. */
static int find_data(int fd, uint64_t size, struct cop_ranges *ret)
{
        uint64_t at = 0;
        int r = 0;

        while (at < size && r == 0) {
                off_t data = lseek(fd, (off_t)at, SEEK_DATA);
                if (data < 0 && errno == ENXIO)
                        break;
                off_t hole = data < 0 || ret->count >= RANGES_MAX - 1 ? -1 : lseek(fd, data, SEEK_HOLE);
                uint64_t begin = data < 0 ? at : (uint64_t)data, end = hole < 0 ? size : (uint64_t)hole;
                r = add_range(ret, begin, MIN_OF(end, size) - begin);
                at = end;
        }
        return r;
}

/* -- output ------------------------------------------------------------------------------------------------------------ */

int cop_pack_output_open(struct cop_pack_output *o, int fd, struct cop_error *err)
{
        *o = (struct cop_pack_output){.buffer = malloc(COP_PACK_CHUNK)};
        int r = o->buffer ? cop_sums_new(&o->sums, err) : cop_error_errno(err, ENOMEM, "packing");

        return r < 0 ? r : cop_pack_stream_write(fd, &o->stream, &o->archive, err);
}

void cop_pack_output_done(struct cop_pack_output *o)
{
        o->stream = cop_pack_stream_free(o->stream);
        o->sums = cop_sums_free(o->sums);
        cop_freep(&o->buffer);
}

COP_DEFINE_CLEANUP(struct archive_entry *, archive_entry_free);
#define _cleanup_entry_ _cleanup_(archive_entry_freep)

static struct archive_entry *entry_new(const char *name, const struct stat *st)
{
        struct archive_entry *entry = archive_entry_new();

        if (!entry)
                return NULL;
        archive_entry_copy_pathname(entry, name);
        archive_entry_set_mode(entry, st->st_mode);
        archive_entry_set_uid(entry, st->st_uid);
        archive_entry_set_gid(entry, st->st_gid);
        archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
        archive_entry_set_size(entry, S_ISREG(st->st_mode) ? st->st_size : 0);
        return entry;
}

static int begin(struct cop_pack_output *o, struct archive_entry *entry, struct cop_error *err)
{
        if (!entry)
                return cop_error_errno(err, ENOMEM, "packing");
        if (archive_write_header(o->archive, entry) != ARCHIVE_OK)
                return cop_error_wrap(err, cop_pack_stream_fail(o->stream, err), "%.200s",
                                      archive_entry_pathname(entry));
        cop_sums_begin(o->sums, entry);
        return 0;
}

static int add_data(struct cop_pack_output *o, uint64_t offset, const void *data, size_t n, struct cop_error *err)
{
        if (archive_write_data(o->archive, data, n) != (la_ssize_t)n)
                return cop_pack_stream_fail(o->stream, err);
        cop_sums_data(o->sums, offset, data, n);
        return 0;
}

/* Those of the overlay, of file capabilities and access lists, and the sandbox's own; what the host noted stays here. */
static bool is_packed(const char *name)
{
        return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 ||
               strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0;
}

/* fd: a file or folder that is open for reading; links and devices have none of these. */
static int add_attributes(struct archive_entry *entry, int fd)
{
        ssize_t n = flistxattr(fd, NULL, 0);

        if (n <= 0)
                return n < 0 && errno != ENOTSUP ? -errno : 0;
        _cleanup_free_ char *names = malloc(ATTRIBUTES_MAX), *value = malloc(ATTRIBUTES_MAX);
        if (!names || !value)
                return -ENOMEM;
        n = flistxattr(fd, names, ATTRIBUTES_MAX);
        for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
                ssize_t size = is_packed(name) ? fgetxattr(fd, name, value, ATTRIBUTES_MAX) : -1;
                if (size >= 0)
                        archive_entry_xattr_add_entry(entry, name, value, (size_t)size);
                else if (is_packed(name))
                        return -errno;
        }
        return n < 0 ? -errno : 0;
}

/* -- members ------------------------------------------------------------------------------------------------------------ */

int cop_pack_add_text(struct cop_pack_output *o, const char *name, const char *text, size_t n, struct cop_error *err)
{
        const struct stat st = {.st_mode = S_IFREG | 0600, .st_size = (off_t)n};
        _cleanup_entry_ struct archive_entry *entry = entry_new(name, &st);
        int r = begin(o, entry, err);

        if (r == 0)
                r = add_data(o, 0, text, n, err);
        return r < 0 ? r : cop_sums_end(o->sums, err);
}

static int add_range_data(struct cop_pack_output *o, int fd, const struct cop_range *range, const char *name,
                          struct cop_error *err)
{
        for (uint64_t done = 0; done < range->length;) {
                size_t want = (size_t)MIN_OF(range->length - done, (uint64_t)COP_PACK_CHUNK);
                ssize_t n = pread(fd, o->buffer, want, (off_t)(range->offset + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return cop_error_errno(err, n < 0 ? errno : EIO, "reading %.200s", name);
                int r = add_data(o, range->offset + done, o->buffer, (size_t)n, err);
                if (r < 0)
                        return r;
                done += (uint64_t)n;
        }
        return 0;
}

/* libarchive counts the bytes of a hole, and does not look at them. */
static int skip_hole(struct cop_pack_output *o, uint64_t length, struct cop_error *err)
{
        while (length > 0) {
                size_t part = (size_t)MIN_OF(length, (uint64_t)INT_MAX);
                if (archive_write_data(o->archive, o->buffer, part) != (la_ssize_t)part)
                        return cop_pack_stream_fail(o->stream, err);
                length -= part;
        }
        return 0;
}

static int add_contents(struct cop_pack_output *o, int fd, const struct cop_ranges *ranges, uint64_t size,
                        const char *name, struct cop_error *err)
{
        uint64_t at = 0;
        int r = 0;

        for (size_t i = 0; r == 0 && i < ranges->count; i++) {
                r = skip_hole(o, ranges->list[i].offset - at, err);
                if (r == 0)
                        r = add_range_data(o, fd, &ranges->list[i], name, err);
                at = ranges->list[i].offset + ranges->list[i].length;
        }
        return r < 0 ? r : skip_hole(o, size - at, err);
}

int cop_pack_add_file(struct cop_pack_output *o, const char *name, int fd, struct cop_ranges *only,
                      struct cop_error *err)
{
        _cleanup_(cop_ranges_done) struct cop_ranges found = {0};
        struct stat st;

        if (fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "%.200s", name);
        int r = only ? 0 : find_data(fd, (uint64_t)st.st_size, &found);
        struct cop_ranges *ranges = only ? only : &found;
        cop_ranges_tidy(ranges);
        _cleanup_entry_ struct archive_entry *entry = entry_new(name, &st);
        if (r == 0 && entry)
                r = add_attributes(entry, fd);
        if (r < 0)
                return cop_error_errno(err, r, "reading %.200s", name);
        bool whole = ranges->count == 1 && ranges->list[0].length == (uint64_t)st.st_size;
        for (size_t i = 0; entry && !whole && i < ranges->count; i++)
                archive_entry_sparse_add_entry(entry, (la_int64_t)ranges->list[i].offset,
                                               (la_int64_t)ranges->list[i].length);
        if (entry && ranges->count == 0 && st.st_size > 0) /* nothing but a hole */
                archive_entry_sparse_add_entry(entry, st.st_size, 0);
        r = begin(o, entry, err);
        if (r == 0)
                r = add_contents(o, fd, ranges, (uint64_t)st.st_size, name, err);
        return r < 0 ? r : cop_sums_end(o->sums, err);
}

int cop_pack_add_node(struct cop_pack_output *o, const char *name, int dir_fd, const char *base, const struct stat *st,
                      struct cop_error *err)
{
        _cleanup_entry_ struct archive_entry *entry = entry_new(name, st);
        char target[COP_PACK_NAME_MAX + 2];
        int r = 0;

        if (entry && S_ISLNK(st->st_mode)) {
                ssize_t n = readlinkat(dir_fd, base, target, sizeof(target) - 1);
                if (n < 0)
                        return cop_error_errno(err, errno, "reading %.200s", name);
                target[n] = '\0';
                archive_entry_copy_symlink(entry, target);
        } else if (entry && S_ISDIR(st->st_mode)) {
                r = add_attributes(entry, dir_fd);
        }
        r = r < 0 ? cop_error_errno(err, r, "reading %.200s", name) : begin(o, entry, err);
        return r < 0 ? r : cop_sums_end(o->sums, err);
}

int cop_pack_add_hardlink(struct cop_pack_output *o, const char *name, const char *target, const struct stat *st,
                          struct cop_error *err)
{
        _cleanup_entry_ struct archive_entry *entry = entry_new(name, st);

        if (entry) {
                archive_entry_copy_hardlink(entry, target);
                archive_entry_set_filetype(entry, AE_IFREG);
                archive_entry_set_size(entry, 0);
        }
        int r = begin(o, entry, err);
        return r < 0 ? r : cop_sums_end(o->sums, err);
}

int cop_pack_add_sums(struct cop_pack_output *o, struct cop_error *err)
{
        struct stat st = {.st_mode = S_IFREG | 0600};
        uint64_t size, done = 0;
        int fd = cop_sums_list(o->sums, &size), r = 0;

        st.st_size = (off_t)size;
        _cleanup_entry_ struct archive_entry *entry = entry_new(COP_PACK_SUMS, &st);
        if (!entry || archive_write_header(o->archive, entry) != ARCHIVE_OK)
                return cop_pack_stream_fail(o->stream, err);
        while (done < size && r == 0) {
                ssize_t n = pread(fd, o->buffer, COP_PACK_CHUNK, (off_t)done);
                if (n <= 0)
                        return cop_error_errno(err, EIO, "checksums");
                if (archive_write_data(o->archive, o->buffer, (size_t)n) != n)
                        r = cop_pack_stream_fail(o->stream, err);
                done += (uint64_t)MAX_OF(n, (ssize_t)0);
        }
        return r;
}
