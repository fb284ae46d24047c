/* Objects that only mappings hold (shared anonymous memory, a memfd whose descriptors are closed, a deleted file), read by
 * who may not open /proc/PID/map_files: through the memory of the processes that map them.
 *
 * Of an object that is seen by nobody in whole, what nobody maps is lost, and it ends where the last mapping does.  A private mapping
 * shows pages that its process has changed as changed: so shared ones are read first, then those that cannot be written, and others
 * only for what is left.  Reading a page of shared memory that nobody has touched would make it; mincore, called by a process that
 * maps it, tells which those are, unless they may be in the swap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"
#include "freezer/runs.h"

#define CHUNK_PAGES (COP_COPY_SIZE / IMG_PAGE)
#define VIEWS_MAX 16384 /* of one object: all are looked at for each part of it */
_Static_assert(CHUNK_PAGES <= COP_SLOT_SIZE - COP_SLOT_DATA, "the slot is too small");

static bool empty_page(const char *p)
{
        static const char zeros[IMG_PAGE];

        return memcmp(p, zeros, IMG_PAGE) == 0;
}

int cop_dump_filled_pages(struct cop_dump *d, struct img_file *f, uint64_t offset, const char *data, size_t pages,
                          struct cop_error *err)
{
        int r = 0;

        for (size_t i = 0, n; i < pages && r == 0; i += n) {
                const char *at = data + i * IMG_PAGE;
                n = 1;
                if (empty_page(at))
                        continue;
                while (i + n < pages && n < CHUNK_PAGES && !empty_page(at + n * IMG_PAGE))
                        n++;
                struct img_extent e = {.address = offset + i * IMG_PAGE,
                                       .pages = (uint32_t)n,
                                       .checksum = XXH3_64bits(at, n * IMG_PAGE) | 1};
                r = cop_image_write_pages(d->writer, at, n * IMG_PAGE, &e.offset, err);
                cop_image_add(d->writer, IMG_EXTENTS, &e);
                f->extents++;
                d->pages_written += n;
        }
        return r;
}

/* How well an area shows the object itself: 0 best. */
static int rank(const struct cop_vma *v)
{
        return v->flags & IMG_VMA_SHARED ? 0 : v->flags & IMG_VMA_WRITE ? 2 : 1;
}

struct cop_view {
        uint32_t proc;
        const struct cop_vma *area; /* borrowed from the list of its process */
};

static int compare_views(const void *a, const void *b)
{
        const struct cop_vma *x = ((const struct cop_view *)a)->area, *y = ((const struct cop_view *)b)->area;

        if (x->dev != y->dev)
                return x->dev < y->dev ? -1 : 1;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* All areas of files, once for all objects: those of one object lie together, in the order of their offsets. */
static int collect_views(struct cop_dump *d)
{
        size_t most = 0;

        for (uint32_t i = 0; i < d->tree.count; i++)
                most += d->vmas[i].count;
        d->views = calloc(most + 1, sizeof(*d->views));
        if (!d->views)
                return -ENOMEM;
        for (uint32_t i = 0; i < d->tree.count; i++)
                for (size_t k = 0; k < d->vmas[i].count; k++)
                        if (d->vmas[i].list[k].ino)
                                d->views[d->view_count++] = (struct cop_view){i, &d->vmas[i].list[k]};
        qsort(d->views, d->view_count, sizeof(*d->views), compare_views);
        return 0;
}

static uint64_t view_end(const struct cop_view *v)
{
        return v->area->offset + (v->area->end - v->area->start);
}

/* The views of one object. */
static struct cop_view *find_views(const struct cop_dump *d, const struct img_file *f, size_t *ret_count)
{
        const struct cop_vma key = {.dev = f->dev, .ino = f->ino};
        const struct cop_view wanted = {.area = &key};
        size_t low = 0, high = d->view_count, n = 0;

        while (low < high) {
                size_t mid = (low + high) / 2;
                if (compare_views(&d->views[mid], &wanted) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        while (low + n < d->view_count && d->views[low + n].area->ino == f->ino &&
               d->views[low + n].area->dev == f->dev)
                n++;
        *ret_count = n;
        return d->views + low;
}

/* The best view at `offset` (NULL: nobody maps this part), and up to where there is no better one. */
static const struct cop_view *best_view(const struct cop_view *views, size_t n, uint64_t offset, uint64_t *ret_end)
{
        const struct cop_view *best = NULL;
        uint64_t end = UINT64_MAX;

        for (size_t i = 0; i < n && views[i].area->offset <= offset; i++)
                if (offset < view_end(&views[i]) && (!best || rank(views[i].area) < rank(best->area)))
                        best = &views[i];
        if (best)
                end = view_end(best);
        for (size_t i = 0; i < n && views[i].area->offset < end; i++)
                if (views[i].area->offset > offset && (!best || rank(views[i].area) < rank(best->area)))
                        end = views[i].area->offset;
        *ret_end = end;
        return best;
}

/* One byte per page, its lowest bit set where the page exists. */
static int find_present(struct cop_dump *d, uint32_t proc, uint64_t address, size_t pages, unsigned char *ret,
                        struct cop_error *err)
{
        struct cop_proc *p = &d->tree.procs[proc];
        struct cop_task *t = &p->tasks[0];
        struct cop_op ops[2] = {cop_op(SYS_mincore, 0, address, pages * IMG_PAGE, cop_batch_data(p, t, 0), 0, 0, 0)};
        int r = cop_batch_start(p, t, ops, 1, NULL, 0, err);

        if (r == 0)
                r = cop_batch_wait(p, t, ops, 1, ret, pages, err);
        if (r == 0 && ops[0].result < 0)
                memset(ret, 1, pages);
        return r;
}

static int dump_chunk(struct cop_dump *d, const struct cop_view *view, uint64_t offset, size_t pages, bool holes,
                      struct img_file *f, struct cop_error *err)
{
        uint64_t address = view->area->start + (offset - view->area->offset);
        unsigned char present[CHUNK_PAGES];
        int r = 0;

        memset(present, 1, pages);
        if (holes)
                r = find_present(d, view->proc, address, pages, present, err);
        for (size_t i = 0, n; i < pages && r == 0; i += n) {
                for (n = 0; i + n < pages && present[i + n] & 1;)
                        n++;
                ssize_t got = n == 0 ? 0
                                     : pread(d->tree.procs[view->proc].mem_fd, d->buffer, n * IMG_PAGE,
                                             (off_t)(address + i * IMG_PAGE));
                /* What is not there, or beyond the end of a file, counts as zeros. */
                n = got < (ssize_t)IMG_PAGE ? 1 : (size_t)got / IMG_PAGE;
                if (got >= (ssize_t)IMG_PAGE)
                        r = cop_dump_filled_pages(d, f, offset + i * IMG_PAGE, d->buffer, n, err);
        }
        return r;
}

/* Files of the kernel's own (the ring of AIO, a driver's buffers) look like deleted ones, but lie on no file system that the tree sees. */
static bool is_mounted(const struct cop_dump *d, uint32_t proc, uint64_t dev)
{
        _cleanup_free_ char *text = NULL;
        char id[32];

        snprintf(id, sizeof(id), " %u:%u ", major(dev), minor(dev));
        return cop_read_file(d->tree.procs[proc].dir_fd, "mountinfo", 16UL << 20, &text, NULL, NULL) == 0 &&
               strstr(text, id);
}

int cop_dump_object_mapped(struct cop_dump *d, uint32_t proc, struct img_file *f, const char *path,
                           struct cop_error *err)
{
        struct sysinfo info = {.totalswap = 1};
        uint64_t size = 0, end;
        size_t count;
        int r = 0;

        if (f->kind == IMG_FILE_REGULAR && !is_mounted(d, proc, f->dev))
                return cop_not_freezable(d, proc, err, "maps %.100s, which only root can read", path);
        if (!d->views && collect_views(d) < 0)
                return cop_error_errno(err, ENOMEM, "collecting memory objects");
        const struct cop_view *views = find_views(d, f, &count);
        if (count > VIEWS_MAX)
                return cop_not_freezable(d, proc, err, "maps %.100s, which only root can read, in more than %d pieces",
                                         path, VIEWS_MAX);
        for (size_t i = 0; i < count; i++)
                size = MAX_OF(size, view_end(&views[i]));
        (void)sysinfo(&info);
        bool holes = f->kind != IMG_FILE_REGULAR && info.totalswap == 0;
        f->first_extent = cop_image_count(d->writer, IMG_EXTENTS);
        for (uint64_t at = 0; at < size && r == 0; at = end) {
                const struct cop_view *view = best_view(views, count, at, &end);
                for (size_t n; view && at < end && r == 0; at += n * IMG_PAGE) {
                        n = MIN_OF(CHUNK_PAGES, (end - at) / IMG_PAGE);
                        r = dump_chunk(d, view, at, n, holes, f, err);
                }
        }
        f->arg[0] = size;
        f->arg[1] = f->kind == IMG_FILE_MEMFD ? 0 : S_IFREG | 0700; /* seals, mode: no descriptor asks any more */
        f->arg[2] = f->kind == IMG_FILE_MEMFD ? S_IFREG | 0777 : 0;
        f->arg[IMG_ARG_ATIME_NS] = f->arg[IMG_ARG_MTIME_NS] = UTIME_OMIT;
        return r;
}
