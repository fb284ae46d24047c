#include "freezer/runs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/parent.h"

#define SMALL (1UL << 20)
#define WORTH_A_THREAD 256 /* extents */

uint64_t cop_run_piece(uint64_t run_start, uint64_t run_end, uint64_t at, bool *ret_aligned)
{
        uint64_t first = (run_start + COP_COPY_SIZE - 1) & ~(COP_COPY_SIZE - 1);

        *ret_aligned = first + COP_COPY_SIZE <= run_end;
        if (!*ret_aligned)
                return MIN_OF(run_end - at, COP_COPY_SIZE);
        return MIN_OF(run_end, (at + COP_COPY_SIZE) & ~(COP_COPY_SIZE - 1)) - at;
}

int cop_runs_add(struct cop_runs *r, uint64_t start, uint64_t end, bool written)
{
        if (r->count > 0 && r->list[r->count - 1].end == start && r->list[r->count - 1].written == written) {
                r->list[r->count - 1].end = end;
                return 0;
        }
        if (r->count == r->allocated) {
                r->allocated = r->allocated ? 2 * r->allocated : 1024;
                struct cop_run *bigger = reallocarray(r->list, r->allocated, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                r->list = bigger;
        }
        r->list[r->count++] = (struct cop_run){start, end, written};
        return 0;
}

uint64_t cop_scan_guard(int pagemap_fd)
{
        static _Atomic int known; /* 1 = no, 2 = yes */
        struct cop_scan_arg nothing = {.size = sizeof(nothing), .return_mask = COP_PAGE_IS_GUARD};

        if (known == 0)
                known = ioctl(pagemap_fd, COP_PAGEMAP_SCAN, &nothing) < 0 && errno == EINVAL ? 1 : 2;
        return known == 2 ? COP_PAGE_IS_GUARD : 0;
}

uint64_t cop_scan_next(const struct cop_scan_arg *arg, const struct cop_page_region *regions, long n)
{
        if (n < (long)arg->vec_len)
                return arg->end;
        return MAX_OF(arg->walk_end, regions[n - 1].end);
}

static int scan(struct cop_runs *r, int pagemap_fd, uint64_t start, uint64_t end, unsigned flags)
{
        struct cop_page_region regions[2048]; /* 48 KiB of stack */
        uint64_t not =
                COP_PAGE_IS_PFNZERO | cop_scan_guard(pagemap_fd) | (flags & COP_SCAN_ANONYMOUS ? 0 : COP_PAGE_IS_FILE);
        struct cop_scan_arg arg = {
                .size = sizeof(arg),
                .flags = flags & COP_SCAN_PROTECT ? COP_PM_SCAN_WP_MATCHING : 0,
                .start = start,
                .end = end,
                .vec = (uintptr_t)regions,
                .vec_len = ELEMENTSOF(regions),
                .category_inverted = not,
                .category_mask = not | (flags & COP_SCAN_WRITTEN ? COP_PAGE_IS_WRITTEN : 0),
                .category_anyof_mask = COP_PAGE_IS_PRESENT | COP_PAGE_IS_SWAPPED,
                .return_mask = COP_PAGE_IS_PRESENT | COP_PAGE_IS_SWAPPED | COP_PAGE_IS_WRITTEN,
        };

        while (arg.start < end) {
                long n = ioctl(pagemap_fd, COP_PAGEMAP_SCAN, &arg);
                if (n < 0)
                        return -errno;
                for (long i = 0; i < n; i++) {
                        int added = cop_runs_add(r, regions[i].start, regions[i].end,
                                                 regions[i].categories & COP_PAGE_IS_WRITTEN);
                        if (added < 0)
                                return added;
                }
                arg.start = cop_scan_next(&arg, regions, n);
        }
        return 0;
}

int cop_scan_end(struct cop_scan *s)
{
        int r = s->end ? scan(s->runs, s->pagemap_fd, s->start, s->end, s->flags) : 0;

        s->end = 0;
        return r;
}

int cop_scan_area(struct cop_scan *s, uint64_t start, uint64_t end, unsigned flags)
{
        unsigned differ = s->flags ^ flags;
        bool small = (flags & COP_SCAN_ANONYMOUS ? end - start : s->end - s->start) <= SMALL;
        int r = 0;

        if (s->end && differ == COP_SCAN_ANONYMOUS && small) {
                flags &= ~(unsigned)COP_SCAN_ANONYMOUS;
                differ = 0;
        }
        if (s->end && differ)
                r = cop_scan_end(s);
        if (!s->end)
                s->start = start;
        s->end = end;
        s->flags = flags;
        return r;
}

static int read_pieces(struct cop_page_copy *c)
{
        struct iovec local = {.iov_base = c->buffer, .iov_len = c->bytes};
        size_t at = 0;

        if (process_vm_readv(c->proc->pid, &local, 1, c->remote, c->count, 0) == (ssize_t)c->bytes)
                return 0;
        /* Areas without read permission, which only /proc/PID/mem gives. */
        for (size_t i = 0; i < c->count; i++) {
                int r = cop_mem_read(c->proc, (uintptr_t)c->remote[i].iov_base, c->buffer + at, c->remote[i].iov_len);
                if (r < 0 && !c->may_vanish)
                        return r;
                /* A run goes over borders of areas: what is left of it is protected now, and will not be copied again. */
                for (size_t k = 0; r < 0 && k < c->remote[i].iov_len; k += IMG_PAGE)
                        if (cop_mem_read(c->proc, (uintptr_t)c->remote[i].iov_base + k, c->buffer + at + k, IMG_PAGE) <
                            0)
                                memset(c->buffer + at + k, 0, IMG_PAGE);
                at += c->remote[i].iov_len;
        }
        return 0;
}

/* A cell of Python writes to twice as many pages as it changes: it counts references up and down again. */
static void drop_known(struct cop_page_copy *c)
{
        size_t at = 0, kept = 0, k = 0;

        for (size_t i = 0; i < c->count; i++) {
                size_t n = c->remote[i].iov_len;
                struct img_extent *e = &c->array[c->extent[i]];
                struct img_extent *last = k > 0 ? &c->array[c->extent[k - 1]] : NULL;
                /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the array is there, it takes `last` for e */
                bool drop = n == IMG_PAGE && cop_parent_has(c->parent, c->known, e->address, c->buffer + at);
                bool joins = last && last->address + c->remote[k - 1].iov_len == e->address;
                if (!drop)
                        memmove(c->buffer + kept, c->buffer + at, n);
                if (!drop && !joins) {
                        c->remote[k] = c->remote[i];
                        c->extent[k++] = c->extent[i];
                } else if (!drop) {
                        last->pages += e->pages;
                        c->remote[k - 1].iov_len += n;
                }
                if (drop || joins)
                        e->pages = 0;
                kept += drop ? 0 : n;
                at += n;
        }
        c->count = k;
        c->bytes = kept;
}

static int flush(struct cop_page_copy *c, struct cop_error *err)
{
        uint64_t offset;
        size_t at = 0;
        int r;

        if (c->count == 0)
                return 0;
        r = read_pieces(c);
        if (r < 0)
                return cop_error_errno(err, -r, "reading memory of pid %d (%s) at %p", c->proc->nspid, c->proc->comm,
                                       c->remote[0].iov_base);
        if (c->known && !c->aligned)
                drop_known(c);
        if (c->count == 0)
                return 0;
        r = c->aligned ? cop_image_write_aligned(c->writer, (uintptr_t)c->remote[0].iov_base, COP_COPY_SIZE, c->buffer,
                                                 c->bytes, &offset, err)
                       : cop_image_write_pages(c->writer, c->buffer, c->bytes, &offset, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < c->count; i++) {
                struct img_extent *e = &c->array[c->extent[i]];
                e->offset = offset + at;
                e->source = 0;
                e->checksum = XXH3_64bits(c->buffer + at, c->remote[i].iov_len) | 1;
                at += c->remote[i].iov_len;
        }
        c->pages += c->bytes / IMG_PAGE;
        c->count = c->bytes = 0;
        c->aligned = false;
        return 0;
}

static int push(struct cop_page_copy *c, uint32_t extent, struct cop_error *err)
{
        const struct img_extent *e = &c->array[extent];
        size_t n = (size_t)e->pages * IMG_PAGE;
        bool aligned = e->checksum == COP_COPY_ALIGNED;
        if (c->count == COP_COPY_IOVS || c->bytes + n > COP_COPY_BATCH || aligned || c->aligned) {
                int r = flush(c, err);
                if (r < 0)
                        return r;
        }
        c->aligned = aligned;
        c->remote[c->count] = (struct iovec){.iov_base = (void *)(uintptr_t)e->address, .iov_len = n};
        c->extent[c->count++] = extent;
        c->bytes += n;
        return 0;
}

static int copy_extents(struct cop_page_copy *c, uint32_t first, uint32_t end, bool long_ones, struct cop_error *err)
{
        int r = 0;

        for (uint32_t i = first; i < end && r == 0; i++) {
                const struct img_extent *e = &c->array[i];
                if (e->source == IMG_NONE && (e->pages >= COP_RUN_LONG) == long_ones)
                        r = push(c, i, err);
        }
        return r == 0 ? flush(c, err) : r;
}

/* Short ones first: so they lie together in the file, and a thaw reads them with few calls. */
static int copy_alone(struct cop_page_copy *c, uint32_t count, struct cop_error *err)
{
        int r = copy_extents(c, 0, count, false, err);

        return r == 0 ? copy_extents(c, 0, count, true, err) : r;
}

/* ---- with two threads ---- */

struct half {
        struct cop_page_copy copy;
        uint32_t first, end;
        int result;
        struct cop_error err;
        char buffer[COP_COPY_BATCH];
};

static void *copy_half(void *userdata)
{
        struct half *h = userdata;

        h->result = copy_extents(&h->copy, h->first, h->end, false, &h->err);
        return NULL;
}

int cop_page_copy_extents(struct cop_page_copy *c, uint32_t count, bool alone, struct cop_error *err)
{
        uint32_t middle = count / 2;
        cpu_set_t cpus;
        bool helped = !alone && count >= WORTH_A_THREAD && cop_other_cpus(&cpus);
        _cleanup_free_ struct half *h = helped ? malloc(sizeof(*h)) : NULL;
        pthread_t thread = 0;

        if (h) {
                h->copy = *c;
                h->copy.buffer = h->buffer;
                h->first = middle;
                h->end = count;
                h->err = COP_ERROR_NULL;
        }
        if (!h || cop_thread_start(&thread, &cpus, copy_half, h) < 0)
                return copy_alone(c, count, err);
        int r = copy_extents(c, 0, middle, false, err);
        pthread_join(thread, NULL);
        c->pages += h->copy.pages;
        if (r == 0 && h->result < 0) {
                r = h->result;
                if (err)
                        *err = h->err;
        }
        return r == 0 ? copy_extents(c, 0, count, true, err) : r;
}
