/* The content of memory objects, deleted files, and files in memory that have a name. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "freezer/dump.h"

#define GRAIN (16UL * IMG_PAGE) /* what is compared at once, and written anew where it differs */

struct content {
        struct cop_dump *d;
        struct img_file *f;
        const struct img_file *old; /* what the parent image has of it, or NULL */
        uint32_t old_extent;        /* of its extents, the first that may be of use */
        char *was;                  /* owned: a grain of it */
};

static int put_new(struct content *c, uint64_t address, const char *data, size_t bytes, struct cop_error *err)
{
        struct img_extent e = {.address = address, .pages = (uint32_t)(bytes / IMG_PAGE)};

        if (bytes == 0)
                return 0;
        e.checksum = XXH3_64bits(data, bytes) | 1;
        int r = cop_image_write_pages(c->d->writer, data, bytes, &e.offset, err);
        if (r < 0)
                return r;
        cop_image_add(c->d->writer, IMG_EXTENTS, &e);
        c->f->extents++;
        c->d->pages_written += e.pages;
        return 0;
}

static void put_old(struct content *c, struct img_extent e)
{
        struct cop_image_writer *w = c->d->writer;
        struct img_extent *last =
                c->f->extents > 0 ? cop_image_record(w, IMG_EXTENTS, cop_image_count(w, IMG_EXTENTS) - 1) : NULL;

        c->d->pages_kept += e.pages;
        if (last && last->source == e.source && last->address + (uint64_t)last->pages * IMG_PAGE == e.address &&
            last->offset + (uint64_t)last->pages * IMG_PAGE == e.offset) {
                last->pages += e.pages;
                return;
        }
        cop_image_add(w, IMG_EXTENTS, &e);
        c->f->extents++;
}

/* What the parent has at this address, cut to *bytes; false: nothing, for *bytes, which is made smaller then as well. */
static bool find_old(struct content *c, uint64_t address, size_t *bytes, struct img_extent *ret)
{
        const struct cop_image *im = c->d->parent;

        for (; c->old && c->old_extent < c->old->extents; c->old_extent++) {
                const struct img_extent *e =
                        IMG_RECORD(im, IMG_EXTENTS, img_extent, c->old->first_extent + c->old_extent);
                uint64_t end = e->address + (uint64_t)e->pages * IMG_PAGE;
                if (end <= address)
                        continue;
                if (e->address > address) {
                        *bytes = MIN_OF(*bytes, e->address - address);
                        return false;
                }
                *bytes = MIN_OF(*bytes, end - address);
                *ret = (struct img_extent){.address = address,
                                           .offset = e->offset + (address - e->address),
                                           .pages = (uint32_t)(*bytes / IMG_PAGE),
                                           .source = e->source};
                return true;
        }
        return false;
}

static bool is_old(const struct content *c, const struct img_extent *e, const char *data, size_t bytes)
{
        return pread(c->d->parent->source_fds[e->source], c->was, bytes, (off_t)e->offset) == (ssize_t)bytes &&
               memcmp(c->was, data, bytes) == 0;
}

/* Whole pages that are at `address` of the object. */
static int put_pages(struct content *c, uint64_t address, const char *data, size_t bytes, struct cop_error *err)
{
        size_t done = 0, n;
        int r = 0;

        if (!c->old)
                return put_new(c, address, data, bytes, err);
        for (size_t at = 0; at < bytes && r == 0; at += n) {
                struct img_extent e;
                n = MIN_OF(GRAIN, bytes - at);
                if (!find_old(c, address + at, &n, &e) || !is_old(c, &e, data + at, n))
                        continue;
                r = put_new(c, address + done, data + done, at - done, err);
                e.source++; /* sources of the parent were added to the writer in order, after its own */
                if (r == 0)
                        put_old(c, e);
                done = at + n;
        }
        return r < 0 ? r : put_new(c, address + done, data + done, bytes - done, err);
}

/* From where data begins to where a hole does; false: there is no more. */
static bool next_data(int fd, uint64_t size, uint64_t *at, uint64_t *ret_end)
{
        off_t data = lseek(fd, (off_t)*at, SEEK_DATA);

        if (data < 0 && errno == ENXIO)
                return false;
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (data >= 0) /* else there is no SEEK_DATA here: all of it */
                *at = (uint64_t)data & ~(uint64_t)(IMG_PAGE - 1);
        *ret_end = hole < 0 ? size : MIN_OF((uint64_t)hole, size);
        return *at < *ret_end;
}

static int put_file(struct content *c, int fd, struct cop_error *err)
{
        char *buffer = c->d->buffer;
        uint64_t size = c->f->arg[0], end;

        for (uint64_t at = 0; at < size && next_data(fd, size, &at, &end);)
                while (at < end) {
                        size_t want = MIN_OF(COP_COPY_SIZE, (end - at + IMG_PAGE - 1) & ~(uint64_t)(IMG_PAGE - 1));
                        ssize_t got = pread(fd, buffer, want, (off_t)at);
                        if (got < 0)
                                return cop_error_errno(err, errno, "reading a memory object or deleted file");
                        if (got == 0)
                                return 0;
                        size_t padded = ((size_t)got + IMG_PAGE - 1) & ~(size_t)(IMG_PAGE - 1);
                        memset(buffer + got, 0, padded - (size_t)got);
                        int r = put_pages(c, at, buffer, padded, err);
                        if (r < 0)
                                return r;
                        at += padded;
                }
        return 0;
}

/* The parent's record of the object: it has no name by which it could be known but its numbers, which are others after a thaw. */
static const struct img_file *find_object(const struct cop_dump *d, const struct img_file *f)
{
        uint32_t n = d->parent ? d->parent->count[IMG_FILES] : 0;

        for (uint32_t i = 0; i < n; i++) {
                const struct img_file *old = IMG_RECORD(d->parent, IMG_FILES, img_file, i);
                if (old->kind == f->kind && old->ino == f->ino && old->dev == f->dev && old->extents > 0)
                        return old;
        }
        return NULL;
}

int cop_dump_object_pages(struct cop_dump *d, int fd, const struct img_file *old, struct img_file *f,
                          struct cop_error *err)
{
        struct content c = {.d = d, .f = f, .old = old ? old : find_object(d, f)};

        f->first_extent = cop_image_count(d->writer, IMG_EXTENTS);
        f->extents = 0;
        if (c.old && !(c.was = malloc(GRAIN)))
                return cop_error_errno(err, ENOMEM, "freezing");
        int r = put_file(&c, fd, err);
        free(c.was);
        return r;
}
