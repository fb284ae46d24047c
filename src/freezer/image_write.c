/* Writing images: tables grow in memory, pages go straight to the page file; meta.img is written last, by rename. */
#include <cpuid.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "freezer/image.h"
#include "freezer/image_tables.h"

#define META_TMP "meta.img.tmp"

struct cop_image_writer {
        int dir_fd;                   /* borrowed */
        int pages_fd;                 /* owned */
        uint64_t pages_size, flushed; /* what was given to the disk already ends at flushed */
        uint64_t room;                /* how long the file is from the beginning on */
        char id[IMG_ID_MAX];
        char parent_id[IMG_ID_MAX];
        struct cop_buf tables[IMG_SECTION_MAX];
        bool *pinned; /* owned; by source number */
        uint32_t pinned_count;
        bool early; /* see cop_image_write_early */
        bool failed;
        bool committed;
};

#define EARLY_BYTES (1UL << 20)

/* In a virtual machine CPUID costs 10 us and more: each leaf is asked for once, after the two that say which there are. */
static void ask_cpu(struct img_header *h)
{
        /* The features a program may have chosen code by: leaves 1, 7.0, 7.1, 0x80000001 and 0xd.1. */
        unsigned a, b, c, d, n = 0, max = (unsigned)__get_cpuid_max(0, NULL);

        if (max >= 1) {
                __cpuid(1, a, b, c, d);
                h->cpu_words[n++] = c & ~(1U << 27); /* OSXSAVE is the kernel's */
                h->cpu_words[n++] = d;
        }
        if (max >= 7) {
                unsigned subleaves;
                __cpuid_count(7, 0, subleaves, b, c, d);
                h->cpu_words[n++] = b;
                h->cpu_words[n++] = c & ~(1U << 4);
                h->cpu_words[n++] = d;
                a = 0;
                if (subleaves >= 1)
                        __cpuid_count(7, 1, a, b, c, d);
                h->cpu_words[n++] = a;
        }
        if ((unsigned)__get_cpuid_max(0x80000000, NULL) >= 0x80000001) {
                __cpuid(0x80000001, a, b, c, d);
                h->cpu_words[n++] = c;
                h->cpu_words[n++] = d;
        }
        if (max >= 0xd) {
                __cpuid_count(0xd, 1, a, b, c, d);
                h->cpu_words[n++] = a;
                __cpuid_count(0xd, 0, a, b, c, d);
                h->xfeatures = (uint64_t)d << 32 | a;
        }
        h->cpu_hash = XXH3_64bits(h->cpu_words, sizeof(h->cpu_words));
}

static void describe_cpu(struct img_header *h)
{
        static struct img_header known; /* of this machine, for the life of the process */

        if (!known.cpu_hash)
                ask_cpu(&known);
        memcpy(h->cpu_words, known.cpu_words, sizeof(h->cpu_words));
        h->xfeatures = known.xfeatures;
        h->cpu_hash = known.cpu_hash;
}

void cop_image_describe_host(struct img_header *h)
{
        struct utsname u;

        if (uname(&u) == 0)
                snprintf(h->kernel, sizeof(h->kernel), "%.60s %.64s", u.release, u.version);
        snprintf(h->engine, sizeof(h->engine), "%s", COPPICE_VERSION);
        describe_cpu(h);
}

static int open_pages(struct cop_image_writer *w, const char *name, struct cop_freeze_room *room)
{
        char path[40];

        if (room && snprintf(path, sizeof(path), "/proc/self/fd/%d", room->fd) > 0 &&
            linkat(AT_FDCWD, path, w->dir_fd, name, AT_SYMLINK_FOLLOW) == 0) {
                w->room = room->size;
                return TAKE_FD(room->fd);
        }
        return openat(w->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

int cop_image_create(int dir_fd, const struct cop_image *parent, int parent_dir_fd, struct cop_freeze_room *room,
                     struct cop_image_writer **ret, struct cop_error *err)
{
        struct cop_image_writer *w = calloc(1, sizeof(*w));
        char name[IMG_PAGES_NAME_MAX];
        struct img_source own = {0};

        if (!w)
                return cop_error_errno(err, ENOMEM, "beginning an image");
        w->dir_fd = dir_fd;
        cop_id_hex(w->id, 16);
        if (parent)
                memcpy(w->parent_id, parent->header->id, IMG_ID_MAX);
        for (int i = 0; i < IMG_SECTION_MAX; i++)
                cop_buf_init(&w->tables[i], 1ULL << 30);
        cop_image_pages_name(w->id, name);
        w->pages_fd = open_pages(w, name, room);
        if (w->pages_fd < 0) {
                int r = cop_error_errno(err, errno, "creating %s", name);
                w->committed = true; /* nothing to remove */
                cop_image_writer_free(w);
                return r;
        }
        memcpy(own.id, w->id, IMG_ID_MAX);
        cop_image_add(w, IMG_SOURCES, &own);
        cop_image_put(w, "", 1); /* offset 0 is the empty string */
        for (uint32_t i = 0; parent && i < parent->count[IMG_SOURCES]; i++) {
                const struct img_source *s = IMG_RECORD(parent, IMG_SOURCES, img_source, i);
                int r = cop_image_add_source(w, s->id, s->size, parent_dir_fd, err);
                if (r < 0) {
                        cop_image_writer_free(w);
                        return r;
                }
        }
        *ret = w;
        return 0;
}

uint32_t cop_image_count(const struct cop_image_writer *w, enum img_section_kind kind)
{
        return (uint32_t)(w->tables[kind].len / cop_image_record_size(kind));
}

uint32_t cop_image_add(struct cop_image_writer *w, enum img_section_kind kind, const void *record)
{
        uint32_t index = cop_image_count(w, kind);

        if (cop_buf_add(&w->tables[kind], record, cop_image_record_size(kind)) < 0) {
                w->failed = true;
                return IMG_NONE;
        }
        return index;
}

void *cop_image_record(struct cop_image_writer *w, enum img_section_kind kind, uint32_t index)
{
        size_t size = cop_image_record_size(kind);

        return index < cop_image_count(w, kind) ? w->tables[kind].data + size * index : NULL;
}

struct img_ref cop_image_put(struct cop_image_writer *w, const void *data, size_t n)
{
        struct cop_buf *heap = &w->tables[IMG_HEAP];
        static const char zeros[8];
        struct img_ref ref = {.offset = (uint32_t)heap->len, .length = (uint32_t)n};

        if (n == 0)
                return (struct img_ref){0};
        /* Blobs are read in place as arrays: keep them aligned; at least one NUL follows. */
        if (cop_buf_add(heap, data, n) < 0 || cop_buf_add(heap, zeros, 8 - n % 8) < 0) {
                w->failed = true;
                return (struct img_ref){0};
        }
        return ref;
}

struct img_ref cop_image_puts(struct cop_image_writer *w, const char *s)
{
        return cop_image_put(w, s ? s : "", s ? strlen(s) : 0);
}

static int write_at(struct cop_image_writer *w, uint64_t at, const void *data, size_t n, struct cop_error *err)
{
        const char *p = data;

        while (n > 0) {
                ssize_t done = pwrite(w->pages_fd, p, n, (off_t)at);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done <= 0)
                        return cop_error_errno(err, done < 0 ? errno : EIO, "writing pages");
                p += done;
                at += (uint64_t)done;
                n -= (size_t)done;
        }
        uint64_t flushed = __atomic_load_n(&w->flushed, __ATOMIC_SEQ_CST);
        if (w->early && at >= flushed + EARLY_BYTES &&
            __atomic_compare_exchange_n(&w->flushed, &flushed, at, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                (void)sync_file_range(w->pages_fd, (off_t)flushed, (off_t)(at - flushed), SYNC_FILE_RANGE_WRITE);
        return 0;
}

int cop_image_write_pages(struct cop_image_writer *w, const void *data, size_t n, uint64_t *ret_offset,
                          struct cop_error *err)
{
        *ret_offset = __atomic_fetch_add(&w->pages_size, n, __ATOMIC_SEQ_CST);
        return write_at(w, *ret_offset, data, n, err);
}

int cop_image_write_aligned(struct cop_image_writer *w, uint64_t address, uint64_t size, const void *data, size_t n,
                            uint64_t *ret_offset, struct cop_error *err)
{
        uint64_t end = __atomic_load_n(&w->pages_size, __ATOMIC_SEQ_CST), at;

        do
                at = end + ((address - end) & (size - 1));
        while (!__atomic_compare_exchange_n(&w->pages_size, &end, at + n, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        if (end < w->room && end < at) /* as there, without room, nothing would be */
                (void)fallocate(w->pages_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)end,
                                (off_t)(MIN_OF(at, w->room) - end));
        *ret_offset = at;
        return write_at(w, at, data, n, err);
}

void cop_image_write_early(struct cop_image_writer *w)
{
        w->early = true;
}

int cop_image_pages_fd(const struct cop_image_writer *w)
{
        return w->pages_fd;
}

const char *cop_image_writer_id(const struct cop_image_writer *w)
{
        return w->id;
}

int cop_image_find_source(const struct cop_image_writer *w, const char *id)
{
        const struct img_source *sources = (const struct img_source *)w->tables[IMG_SOURCES].data;

        for (uint32_t i = 0; i < cop_image_count(w, IMG_SOURCES); i++)
                if (strcmp(sources[i].id, id) == 0)
                        return (int)i;
        return -1;
}

int cop_image_add_source(struct cop_image_writer *w, const char *id, uint64_t size, int from_dir_fd,
                         struct cop_error *err)
{
        struct img_source s = {.size = size};
        char name[IMG_PAGES_NAME_MAX];
        int known = cop_image_find_source(w, id);

        if (known >= 0)
                return known;
        snprintf(s.id, sizeof(s.id), "%s", id);
        cop_image_pages_name(s.id, name);
        if (linkat(from_dir_fd, name, w->dir_fd, name, 0) < 0 && errno != EEXIST)
                return cop_error_errno(err, errno, "linking the parent's %s into the image (same file system needed)",
                                       name);
        return (int)cop_image_add(w, IMG_SOURCES, &s);
}

void cop_image_pin_source(struct cop_image_writer *w, uint32_t source)
{
        if (source >= w->pinned_count) {
                bool *bigger = realloc(w->pinned, source + 1);
                if (!bigger) {
                        w->failed = true;
                        return;
                }
                memset(bigger + w->pinned_count, 0, source + 1 - w->pinned_count);
                w->pinned = bigger;
                w->pinned_count = source + 1;
        }
        w->pinned[source] = true;
}

bool cop_image_is_pinned(const struct cop_image_writer *w, uint32_t source)
{
        return source < w->pinned_count && w->pinned[source];
}

/* An ancestor none of whose pages is used any more leaves the chain: its link is removed and sources are renumbered. */
static void drop_unused_sources(struct cop_image_writer *w)
{
        uint32_t n = cop_image_count(w, IMG_SOURCES), kept = 0;
        _cleanup_free_ uint32_t *map = calloc(n, sizeof(*map));
        struct img_extent *extents = (struct img_extent *)w->tables[IMG_EXTENTS].data;
        uint32_t extent_count = cop_image_count(w, IMG_EXTENTS);
        struct img_source *sources = (struct img_source *)w->tables[IMG_SOURCES].data;

        if (!map)
                return;
        map[0] = 1;
        for (uint32_t i = 0; i < extent_count; i++)
                if (extents[i].source < n)
                        map[extents[i].source] = 1;
        for (uint32_t i = 0; i < n; i++)
                map[i] |= cop_image_is_pinned(w, i);
        for (uint32_t i = 0; i < n; i++) {
                char name[IMG_PAGES_NAME_MAX];
                if (map[i]) {
                        sources[kept] = sources[i];
                        map[i] = kept++;
                        continue;
                }
                cop_image_pages_name(sources[i].id, name);
                unlinkat(w->dir_fd, name, 0);
        }
        for (uint32_t i = 0; i < extent_count; i++)
                extents[i].source = map[extents[i].source];
        w->tables[IMG_SOURCES].len = kept * sizeof(*sources);
}

int cop_image_compare_places(const void *a, const void *b)
{
        const struct img_extent *x = a, *y = b;

        if (x->source != y->source)
                return x->source < y->source ? -1 : 1;
        return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int assemble(struct cop_image_writer *w, struct cop_buf *out)
{
        struct img_header h = {.version = IMG_VERSION, .created = cop_now(CLOCK_REALTIME)};
        struct img_section dir[IMG_SECTION_MAX] = {0};
        size_t n = 0, at;

        memcpy(h.magic, IMG_MAGIC, sizeof(h.magic));
        memcpy(h.id, w->id, IMG_ID_MAX);
        memcpy(h.parent_id, w->parent_id, IMG_ID_MAX);
        cop_image_describe_host(&h);
        h.section_count = IMG_SECTION_MAX - 1;
        at = sizeof(h) + h.section_count * sizeof(dir[0]);
        for (unsigned kind = 1; kind < IMG_SECTION_MAX; kind++, n++) {
                struct cop_buf *t = &w->tables[kind];
                at = (at + 63) & ~63ULL;
                dir[n] = (struct img_section){
                        .kind = kind,
                        .record_size = (uint32_t)cop_image_record_size(kind),
                        .count = t->len / cop_image_record_size(kind),
                        .offset = at,
                        .checksum = XXH3_64bits(t->data ? t->data : "", t->len),
                };
                at += t->len;
        }
        h.file_size = at;
        XXH3_state_t *state = XXH3_createState();
        if (!state)
                return -ENOMEM;
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, &h, sizeof(h));
        XXH3_64bits_update(state, dir, n * sizeof(dir[0]));
        h.checksum = XXH3_64bits_digest(state);
        XXH3_freeState(state);

        int r = cop_buf_add(out, &h, sizeof(h));
        if (r == 0)
                r = cop_buf_add(out, dir, n * sizeof(dir[0]));
        for (size_t i = 0; r == 0 && i < n; i++) {
                static const char zeros[64];
                r = cop_buf_add(out, zeros, dir[i].offset - out->len);
                if (r == 0 && w->tables[dir[i].kind].len > 0)
                        r = cop_buf_add(out, w->tables[dir[i].kind].data, w->tables[dir[i].kind].len);
        }
        return r;
}

int cop_image_make_room(struct cop_image_writer *w, size_t heap, size_t packets, bool sync, struct cop_error *err)
{
        size_t size = sizeof(struct img_header) + IMG_SECTION_MAX * (sizeof(struct img_section) + 64) + heap +
                      packets * sizeof(struct img_packet);
        int r = cop_buf_reserve(&w->tables[IMG_HEAP], heap);

        if (r == 0)
                r = cop_buf_reserve(&w->tables[IMG_PACKETS], packets * sizeof(struct img_packet));
        for (unsigned kind = 1; kind < IMG_SECTION_MAX; kind++)
                size += w->tables[kind].len;
        _cleanup_close_ int fd = openat(w->dir_fd, META_TMP, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (r == 0 && fd < 0)
                r = -errno;
        if (r == 0)
                r = -posix_fallocate(fd, 0, (off_t)size);
        if (r == 0 && sync && (fdatasync(w->pages_fd) < 0 || fdatasync(fd) < 0))
                r = -errno;
        return r < 0 ? cop_error_errno(err, -r, "making room in the image") : 0;
}

int cop_image_commit(struct cop_image_writer *w, bool sync, uint64_t *ret_bytes, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(2ULL << 30);
        int r;

        if (w->failed)
                return cop_error_errno(err, ENOMEM, "collecting the image");
        if (w->room > w->pages_size && ftruncate(w->pages_fd, (off_t)w->pages_size) < 0)
                return cop_error_errno(err, errno, "cutting off the rest of the page file");
        ((struct img_source *)cop_image_record(w, IMG_SOURCES, 0))->size = w->pages_size;
        drop_unused_sources(w);
        r = assemble(w, &out);
        if (r < 0)
                return cop_error_errno(err, -r, "assembling the image");
        _cleanup_close_ int fd = openat(w->dir_fd, META_TMP, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
                return cop_error_errno(err, errno, "creating meta.img");
        r = cop_write_all(fd, out.data, out.len);
        if (r == 0 && ftruncate(fd, (off_t)out.len) < 0) /* room that was made and not needed */
                r = -errno;
        if (r == 0 && sync && (fdatasync(w->pages_fd) < 0 || fdatasync(fd) < 0))
                r = -errno;
        if (r == 0 && renameat(w->dir_fd, META_TMP, w->dir_fd, "meta.img") < 0)
                r = -errno;
        if (r == 0 && sync && fsync(w->dir_fd) < 0)
                r = -errno;
        if (r < 0)
                return cop_error_errno(err, -r, "writing meta.img");
        w->committed = true;
        if (ret_bytes)
                *ret_bytes = w->pages_size + out.len;
        return 0;
}

void cop_image_writer_free(struct cop_image_writer *w)
{
        if (!w)
                return;
        for (uint32_t i = 0; !w->committed && i < cop_image_count(w, IMG_SOURCES); i++) {
                char name[IMG_PAGES_NAME_MAX];
                cop_image_pages_name(((struct img_source *)cop_image_record(w, IMG_SOURCES, i))->id, name);
                unlinkat(w->dir_fd, name, 0);
        }
        if (!w->committed)
                unlinkat(w->dir_fd, META_TMP, 0);
        cop_close(w->pages_fd);
        for (int i = 0; i < IMG_SECTION_MAX; i++)
                cop_buf_done(&w->tables[i]);
        free(w->pinned);
        free(w);
}
