/* Memory areas and pages.
 *
 * Theory of operation.  The kernel's areas become img_vma records.  Which pages are worth keeping is asked of
 * PAGEMAP_SCAN: present (or swapped), not the zero page, and, in private areas, not of a file.  For a private mapping of
 * a file those are the pages written since; for anonymous memory all that was ever touched.
 *
 * Where an area of the target is itself a private mapping of one of our own page files (the tree was thawed before), it
 * is logically anonymous, or a part of a private mapping of a library, as the parent image tells: its unwritten pages are
 * referred to where they already are, and only the written ones go to the new page file.  Neighbours with equal
 * attributes are joined again, so that areas do not multiply from generation to generation.  Small changes in a large run
 * become patches, copied over its mapping at thaw, instead of splitting it; when they are many in a run that is mapped, it
 * is written anew.
 *
 * Pages are written in two passes, short runs first: what the thaw will copy then lies together in the file and is read
 * with a few calls.
 */
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/dump.h"
#include "freezer/parent.h"
#include "freezer/runs.h"
#include "freezer/tracker.h"

#define RUN_LONG COP_RUN_LONG
#define GAP_MAX 64 /* extents */
#define FLAGS_OF_MAPS (IMG_VMA_READ | IMG_VMA_WRITE | IMG_VMA_EXEC | IMG_VMA_SHARED)

/* ---- areas into records ---- */

struct area_state {
        struct cop_dump *d;
        uint32_t proc;
        const struct cop_tracked *tracked; /* borrowed; NULL: all runs count as written */
        const struct img_proc *old;        /* the process in the parent image, or NULL */
        uint32_t old_vma;                  /* where in its areas the last search ended */
        struct img_vma vma;                /* being joined; start == end: none */
        /* Extents of the area being built; written to the tables when it is complete. */
        struct img_extent *extents, *patches; /* owned */
        uint64_t patched;                     /* where the last extent that has patches on it ends */
        size_t extent_count, extents_allocated, patch_count, patches_allocated;
        uint32_t first_new; /* extent records of this process with pages still to be written: source IMG_NONE */
};

static int list_add(struct img_extent **list, size_t *count, size_t *allocated, struct img_extent e)
{
        if (*count > 0) {
                struct img_extent *last = &(*list)[*count - 1];
                uint64_t bytes = (uint64_t)last->pages * IMG_PAGE;
                /* Pages from an ancestor join when contiguous there; new ones up to what one buffer holds, since a
                 * checksum covers one extent. */
                if (last->address + bytes == e.address && last->source == e.source &&
                    last->checksum != COP_COPY_ALIGNED && e.checksum != COP_COPY_ALIGNED &&
                    (e.source == IMG_NONE ? bytes + (uint64_t)e.pages * IMG_PAGE <= COP_COPY_SIZE
                                          : last->offset + bytes == e.offset)) {
                        last->pages += e.pages;
                        last->checksum = 0; /* of an ancestor's extents only whole ones can be verified */
                        return 0;
                }
        }
        if (*count == *allocated) {
                *allocated = *allocated ? 2 * *allocated : 256;
                struct img_extent *bigger = reallocarray(*list, *allocated, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                *list = bigger;
        }
        (*list)[(*count)++] = e;
        return 0;
}

static int add_patch(struct area_state *s, struct img_extent e)
{
        return list_add(&s->patches, &s->patch_count, &s->patches_allocated, e);
}

/* The extent before e that lies in the same page file at the same distance, with nothing but short ones in between and no hole:
 * there the file's bytes must not show.  Patches do not overlap: so both together are long, since a short one may become a patch
 * itself, and there are no patches on those in between.  NULL: none. */
static struct img_extent *find_continued(const struct area_state *s, const struct img_extent *e)
{
        uint64_t start = e->address, end = start + (uint64_t)e->pages * IMG_PAGE;

        if (e->source == IMG_NONE || !(s->vma.flags & IMG_VMA_WRITE) ||
            s->vma.flags & (IMG_VMA_GROWSDOWN | IMG_VMA_LOCKED))
                return NULL;
        for (size_t i = s->extent_count, looks = 0; i > 0 && looks < GAP_MAX; i--, looks++) {
                struct img_extent *x = &s->extents[i - 1];
                if (x->address + (uint64_t)x->pages * IMG_PAGE != start || start < s->patched)
                        break;
                if (x->source == e->source && e->offset - x->offset == e->address - x->address &&
                    end - x->address >= RUN_LONG * IMG_PAGE)
                        return x;
                if (x->pages >= RUN_LONG)
                        break;
                start = x->address;
        }
        return NULL;
}

/* What continues an extent over such a gap is one with it, and what lies in the gap are patches: so a thaw maps memory with few
 * calls however often it was written here and there, and copies no more than was. */
static int add_extent(struct area_state *s, struct img_extent e)
{
        struct img_extent *x = find_continued(s, &e);
        int r = 0;

        if (!x || x == &s->extents[s->extent_count - 1])
                return list_add(&s->extents, &s->extent_count, &s->extents_allocated, e);
        for (const struct img_extent *gap = x + 1; r == 0 && gap < s->extents + s->extent_count; gap++)
                r = add_patch(s, *gap);
        x->pages = (uint32_t)((e.address - x->address) / IMG_PAGE) + e.pages;
        x->checksum = 0; /* of an ancestor's extents only whole ones can be verified */
        s->extent_count = (size_t)(x - s->extents) + 1;
        s->patched = x->address + (uint64_t)x->pages * IMG_PAGE;
        return r;
}

static int compare_addresses(const void *a, const void *b)
{
        const struct img_extent *x = a, *y = b;

        return x->address < y->address ? -1 : x->address > y->address;
}

static int add_new(struct area_state *s, uint64_t start, uint64_t end, bool patch)
{
        int r = 0;

        for (uint64_t at = start; r == 0 && at < end;) {
                bool aligned;
                uint64_t n = cop_run_piece(start, end, at, &aligned);
                struct img_extent e = {.address = at,
                                       .pages = (uint32_t)(n / IMG_PAGE),
                                       .source = IMG_NONE,
                                       .checksum = aligned ? COP_COPY_ALIGNED : 0};
                r = patch ? add_patch(s, e) : add_extent(s, e);
                at += n;
        }
        return r;
}

static int finish_area(struct area_state *s)
{
        struct cop_image_writer *w = s->d->writer;

        if (s->vma.start == s->vma.end)
                return 0;
        s->vma.first_extent = cop_image_count(w, IMG_EXTENTS);
        s->vma.extents = (uint32_t)s->extent_count;
        for (size_t i = 0; i < s->extent_count; i++)
                cop_image_add(w, IMG_EXTENTS, &s->extents[i]);
        if (s->patch_count > 0)
                qsort(s->patches, s->patch_count, sizeof(*s->patches), compare_addresses);
        s->vma.first_patch = cop_image_count(w, IMG_EXTENTS);
        s->vma.patches = (uint32_t)s->patch_count;
        for (size_t i = 0; i < s->patch_count; i++)
                cop_image_add(w, IMG_EXTENTS, &s->patches[i]);
        s->extent_count = s->patch_count = 0;
        s->patched = 0;
        cop_image_add(w, IMG_VMAS, &s->vma);
        s->vma.start = s->vma.end = 0;
        return 0;
}

/* An unwritten anonymous page is where it was copied to before the stop, or where the parent image has it. */
static int keep(struct area_state *s, uint64_t start, uint64_t end, bool patch);

int cop_dump_source_of(const struct cop_dump *d, const struct cop_vma *v)
{
        for (size_t i = 0; i < d->source_count; i++)
                if (v->ino && d->sources[i].ino == v->ino && d->sources[i].dev == v->dev)
                        return (int)i;
        return -1;
}

/* What of such a mapping is as it was; patched: there are patches on it. */
static int add_mapped(struct area_state *s, const struct cop_vma *v, int source, uint64_t start, uint64_t end,
                      bool patched)
{
        int r = 0;

        while (start < end && r == 0) {
                struct img_extent e = {
                        .address = start,
                        .offset = v->offset + (start - v->start),
                        .pages = (uint32_t)((end - start) / IMG_PAGE),
                        .source = (uint32_t)source,
                };
                cop_dump_follow(s->d, &e);
                s->d->pages_kept += e.pages;
                start += (uint64_t)e.pages * IMG_PAGE;
                r = add_extent(s, e);
                if (patched)
                        s->patched = start;
        }
        return r;
}

/* A private mapping of a page file of ours, with the runs written since. */
static int add_image_backed(struct area_state *s, const struct cop_vma *v, int source, const struct cop_run *runs,
                            size_t n)
{
        uint64_t at = v->start, dirty = 0;
        size_t patches = s->patch_count;
        int r = 0;

        for (size_t i = 0; i < n; i++)
                dirty += runs[i].written ? runs[i].end - runs[i].start : 0;
        bool anew = dirty * 4 > v->end - v->start;
        if (anew && !s->tracked)
                return add_new(s, v->start, v->end, false);
        for (size_t i = 0; r == 0 && i <= n; i++) {
                bool split = i < n && (runs[i].end - runs[i].start >= RUN_LONG * IMG_PAGE ||
                                       (runs[i].start == v->start && runs[i].end == v->end));
                if (i < n && !split) {
                        r = runs[i].written ? add_new(s, runs[i].start, runs[i].end, true)
                                            : keep(s, runs[i].start, runs[i].end, true);
                        continue;
                }
                uint64_t stop = i < n ? runs[i].start : v->end;
                r = add_mapped(s, v, source, at, stop, s->patch_count > patches);
                patches = s->patch_count;
                if (r == 0 && i < n)
                        r = runs[i].written ? add_new(s, runs[i].start, runs[i].end, false)
                                            : keep(s, runs[i].start, runs[i].end, false);
                at = i < n ? runs[i].end : v->end;
        }
        return r;
}

static int add_private(struct area_state *s, const struct cop_vma *v, const struct cop_run *runs, size_t n)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++)
                r = runs[i].written ? add_new(s, runs[i].start, runs[i].end, false)
                                    : keep(s, runs[i].start, runs[i].end, false);
        return r;
}

static int keep_page_range(struct area_state *s, const struct img_vma *v, uint64_t start, uint64_t end, bool as_patch)
{
        const struct cop_image *im = s->d->parent;
        int r = 0;

        for (uint64_t at = start; r == 0 && at < end;) {
                struct img_extent kept;
                if (!cop_parent_piece(im, v, at, end, &kept)) {
                        /* The parent says zero here, yet a page is present: write it. */
                        r = add_new(s, at, at + IMG_PAGE, as_patch);
                        at += IMG_PAGE;
                        continue;
                }
                /* Sources of the parent were added to the writer in order, after its own. */
                kept.source++;
                s->d->pages_kept += kept.pages;
                r = as_patch ? add_patch(s, kept) : add_extent(s, kept);
                at += (uint64_t)kept.pages * IMG_PAGE;
        }
        return r;
}

static int keep_from_parent(struct area_state *s, uint64_t start, uint64_t end, bool patch)
{
        const struct cop_image *im = s->d->parent;
        const struct img_proc *p = s->old;
        int r = 0;

        /* Runs come in ascending order but for patches of one area: go on where the last one was. */
        while (p && s->old_vma > 0 && IMG_RECORD(im, IMG_VMAS, img_vma, p->first_vma + s->old_vma - 1)->end > start)
                s->old_vma--;
        while (p && s->old_vma < p->vmas && IMG_RECORD(im, IMG_VMAS, img_vma, p->first_vma + s->old_vma)->end <= start)
                s->old_vma++;
        for (uint32_t i = s->old_vma; p && i < p->vmas && r == 0 && start < end; i++) {
                const struct img_vma *v = IMG_RECORD(im, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->start >= end)
                        break;
                if (v->start > start) {
                        r = add_new(s, start, v->start, patch);
                        start = v->start;
                }
                uint64_t stop = MIN_OF(end, v->end);
                if (r == 0)
                        r = keep_page_range(s, v, start, stop, patch);
                start = stop;
        }
        return r == 0 && start < end ? add_new(s, start, end, patch) : r;
}

static size_t find_precopied(const struct cop_precopy *pre, uint64_t address)
{
        size_t low = 0, high = pre->count;

        while (low < high) {
                size_t mid = (low + high) / 2;
                if (pre->list[mid].address + (uint64_t)pre->list[mid].pages * IMG_PAGE <= address)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

static int keep(struct area_state *s, uint64_t start, uint64_t end, bool patch)
{
        const struct cop_precopy *pre = s->tracked ? &s->tracked->pre : NULL;
        int r = 0;

        for (size_t i = pre ? find_precopied(pre, start) : 0; pre && i < pre->count && start < end && r == 0; i++) {
                const struct img_extent *e = &pre->list[i];
                uint64_t e_end = e->address + (uint64_t)e->pages * IMG_PAGE, stop = MIN_OF(end, e_end);
                if (e->address >= end)
                        break;
                if (e->address > start) {
                        r = keep_from_parent(s, start, e->address, patch);
                        start = e->address;
                }
                struct img_extent piece = {.address = start,
                                           .offset = e->offset + (start - e->address),
                                           .source = 0,
                                           .pages = (uint32_t)((stop - start) / IMG_PAGE),
                                           .checksum = start == e->address && stop == e_end ? e->checksum : 0};
                if (r == 0)
                        r = patch ? add_patch(s, piece) : add_extent(s, piece);
                start = stop;
        }
        return r == 0 && start < end ? keep_from_parent(s, start, end, patch) : r;
}

/* Equal in what maps tells: mostly the kernel would have made one area of both, if they were so in the rest, too. */
static bool is_seam(const struct cop_vmas *vs, const struct cop_vma *a, const struct cop_vma *b)
{
        return a->end == b->start && (a->flags & FLAGS_OF_MAPS) == (b->flags & FLAGS_OF_MAPS) && a->dev == b->dev &&
               a->ino == b->ino && (a->ino == 0 || a->offset + (a->end - a->start) == b->offset) &&
               strcmp(vs->text + a->path, vs->text + b->path) == 0;
}

static bool joins(const struct area_state *s, const struct img_vma *next)
{
        const struct img_vma *v = &s->vma;

        return v->start != v->end && v->end == next->start && v->flags == next->flags && v->file == next->file &&
               !(v->flags & IMG_VMA_SHARED) &&
               (v->file == IMG_NONE || v->offset + (v->end - v->start) == next->offset) && v->name.length == 0 &&
               next->name.length == 0;
}

static bool is_of_file(const struct cop_dump *d, const struct cop_vmas *vs, size_t i, const char *path)
{
        const struct cop_vma *v = &vs->list[i];
        const char *name = vs->text + v->path;
        size_t n = strlen(path);

        return v->ino && !v->special && !(v->flags & IMG_VMA_SHARED) && strncmp(name, path, n) == 0 &&
               (name[n] == '\0' || strcmp(name + n, " (deleted)") == 0) && cop_dump_source_of(d, v) < 0;
}

/* Where the parent has its pages is where they were, or where they have been copied to since. */
static const struct img_vma *find_file_area(const struct area_state *s, const struct cop_vma *v, int source)
{
        struct img_extent e = {
                .source = (uint32_t)source, .offset = v->offset, .pages = (uint32_t)((v->end - v->start) / IMG_PAGE)};

        cop_dump_follow(s->d, &e);
        return cop_parent_file_area(s->d->parent, s->old, v->start, v->end, e.source - 1, e.offset);
}

/* Of which file memory is that a thaw has mapped from a page file in its place, and where in it; IMG_NONE: of none, anonymous.  The
 * library has other areas, mostly next to it, which tell what has become of the file. */
static int logical_file(struct area_state *s, const struct cop_vma *v, int source, uint32_t *ret_file,
                        uint64_t *ret_offset, struct cop_error *err)
{
        struct cop_dump *d = s->d;
        const struct cop_vmas *vs = &d->vmas[s->proc];
        const struct img_vma *old = find_file_area(s, v, source);
        const struct img_file *f = old ? IMG_RECORD(d->parent, IMG_FILES, img_file, old->file) : NULL;
        size_t self = (size_t)(v - vs->list), found = SIZE_MAX;

        *ret_file = IMG_NONE;
        if (!f || f->kind != IMG_FILE_REGULAR)
                return 0;
        const char *path = cop_image_at(d->parent, &f->path);
        for (size_t k = 1; k < vs->count && found == SIZE_MAX; k++)
                found = k <= self && is_of_file(d, vs, self - k, path)              ? self - k
                        : self + k < vs->count && is_of_file(d, vs, self + k, path) ? self + k
                                                                                    : SIZE_MAX;
        if (found == SIZE_MAX && f->arg[2] == 0)
                return 0;
        *ret_offset = old->offset + (v->start - old->start);
        if (found == SIZE_MAX) {
                struct img_file again = {.kind = IMG_FILE_REGULAR, .flags = O_RDONLY, .arg = {[2] = 1}};
                again.path = cop_image_puts(d->writer, path);
                *ret_file = cop_image_add(d->writer, IMG_FILES, &again);
                return 0;
        }
        int r = cop_dump_mapped_file(d, s->proc, &vs->list[found], err);
        *ret_file = (uint32_t)r;
        return r < 0 ? r : 0;
}

static struct img_ref area_name(struct cop_dump *d, const char *path)
{
        size_t n = strlen(path);

        if (strncmp(path, "[anon:", 6) == 0 && n > 7)
                return cop_image_put(d->writer, path + 6, n - 7);
        return (struct img_ref){0};
}

static int dump_area(struct area_state *s, const struct cop_vma *v, const struct cop_run *runs, size_t n,
                     struct cop_error *err)
{
        struct cop_dump *d = s->d;
        const char *path = d->vmas[s->proc].text + v->path;
        int source = v->flags & IMG_VMA_SHARED ? -1 : cop_dump_source_of(d, v), r = 0;
        uint32_t file = IMG_NONE;
        uint64_t offset = v->offset;
        if (source >= 0)
                r = logical_file(s, v, source, &file, &offset, err);
        if (r < 0)
                return r;
        bool anonymous = (source >= 0 && file == IMG_NONE) || (v->ino == 0 && (path[0] == '\0' || path[0] == '[')) ||
                         (!(v->flags & IMG_VMA_SHARED) && strcmp(path, "/dev/zero") == 0);
        struct img_vma next = {
                .start = v->start,
                .end = v->end,
                .offset = anonymous ? 0 : offset,
                .flags = v->flags,
                .file = file,
        };

        if (source >= 0 && !(d->request->flags & COP_FREEZE_KILL))
                cop_image_pin_source(d->writer, (uint32_t)source);
        if (source >= 0)
                next.flags &= ~(uint32_t)IMG_VMA_NORESERVE;
        next.flags |= anonymous ? IMG_VMA_MAYWRITE : 0U;
        if (anonymous)
                next.name = area_name(d, path);
        else if (file == IMG_NONE) {
                r = cop_dump_mapped_file(d, s->proc, v, err);
                if (r < 0)
                        return r;
                next.file = (uint32_t)r;
        }
        if (joins(s, &next)) {
                s->vma.end = next.end;
                s->vma.seams += is_seam(&d->vmas[s->proc], v - 1, v);
        } else {
                finish_area(s);
                s->vma = next;
        }
        if (v->flags & (IMG_VMA_SHARED | IMG_VMA_WIPEONFORK | IMG_VMA_DROPPABLE))
                return 0; /* content belongs to the file, or must not be kept */
        r = source >= 0 ? add_image_backed(s, v, source, runs, n) : add_private(s, v, runs, n);
        return r < 0 ? cop_error_errno(err, -r, "collecting memory") : 0;
}

/* Writes the pages of the process's new extents. */
static int write_new(struct cop_dump *d, uint32_t proc, uint32_t first, struct cop_error *err)
{
        _cleanup_free_ struct cop_page_copy *c = calloc(1, sizeof(*c));

        if (!c)
                return cop_error_errno(err, ENOMEM, "writing pages");
        *c = (struct cop_page_copy){.writer = d->writer, .proc = &d->tree.procs[proc], .buffer = d->buffer};
        c->array = cop_image_record(d->writer, IMG_EXTENTS, first); /* nothing is added meanwhile */
        int r = cop_page_copy_extents(c, cop_image_count(d->writer, IMG_EXTENTS) - first, d->guest, err);
        d->pages_written += c->pages;
        return r;
}

static int check_area(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_error *err)
{
        const char *path = d->vmas[proc].text + v->path;

        if (v->hugetlb)
                return cop_not_freezable(d, proc, err, "maps hugetlb pages at %#llx", (unsigned long long)v->start);
        if (v->uffd && !d->request->tracker)
                return cop_not_freezable(d, proc, err, "has memory under a userfaultfd at %#llx",
                                         (unsigned long long)v->start);
        if (strncmp(path, "anon_inode:[io_uring]", 21) == 0)
                return cop_not_freezable(d, proc, err, "holds an io_uring");
        if (strncmp(path, "/[aio]", 6) == 0)
                return cop_not_freezable(d, proc, err, "has a context of asynchronous I/O (io_setup)");
        if (v->pfnmap || strncmp(path, "anon_inode:", 11) == 0)
                return cop_not_freezable(d, proc, err, "maps device memory (%.80s) at %#llx", path,
                                         (unsigned long long)v->start);
        return 0;
}

/* MADV_GUARD_INSTALL: kernel >= 6.15 tells; before, a guard page shows as swapped and reading it fails by name. */
static int dump_guards(struct cop_dump *d, uint32_t proc, int pagemap_fd, struct cop_error *err)
{
        struct cop_page_region regions[256];
        struct cop_scan_arg arg = {.size = sizeof(arg),
                                   .end = IMG_ADDRESS_END,
                                   .vec = (uintptr_t)regions,
                                   .vec_len = ELEMENTSOF(regions),
                                   .category_mask = COP_PAGE_IS_GUARD,
                                   .return_mask = COP_PAGE_IS_GUARD};
        struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc);

        ip->first_guard = cop_image_count(d->writer, IMG_GUARDS);
        if (d->vmas[proc].guards && cop_scan_guard(pagemap_fd))
                while (arg.start < arg.end) {
                        long n = ioctl(pagemap_fd, COP_PAGEMAP_SCAN, &arg);
                        if (n < 0)
                                return cop_error_errno(err, errno, "looking for guard pages of pid %d",
                                                       d->tree.procs[proc].nspid);
                        for (long i = 0; i < n; i++, ip->guards++)
                                cop_image_add(d->writer, IMG_GUARDS,
                                              &(struct img_guard){regions[i].start, regions[i].end});
                        arg.start = cop_scan_next(&arg, regions, n);
                }
        return 0;
}

static uint64_t note_vdso(struct img_proc *ip, const struct cop_vma *v)
{
        if (!v->vvar && !v->vdso)
                return 0;
        if (ip->vdso == 0)
                ip->vdso = v->start;
        if (v->vdso)
                ip->vdso_text = v->start;
        ip->vdso_size = v->end - ip->vdso;
        return v->end - v->start;
}

/* A thaw can map all of it, as the first process has it, or nothing. */
static int check_vdso(struct cop_dump *d, uint32_t proc, uint64_t bytes, struct cop_error *err)
{
        const struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc),
                              *first = cop_image_record(d->writer, IMG_PROCS, 0);
        bool whole = ip->vdso_size == bytes && bytes == first->vdso_size &&
                     ip->vdso_text - ip->vdso == first->vdso_text - first->vdso;

        return bytes == 0 || whole ? 0 : cop_not_freezable(d, proc, err, "has unmapped or moved a part of its vdso");
}

static int dump_areas(struct cop_dump *d, uint32_t proc, struct cop_error *err)
{
        struct cop_vmas *vs = &d->vmas[proc];
        struct img_proc *ip = cop_image_record(d->writer, IMG_PROCS, proc);
        struct cop_dump_scan *scan = &d->scans[proc];
        struct area_state s = {.d = d, .proc = proc, .tracked = scan->tracked};
        struct cop_runs runs = scan->runs; /* cut at borders of areas here */
        uint32_t first_vma = cop_image_count(d->writer, IMG_VMAS),
                 first_extent = cop_image_count(d->writer, IMG_EXTENTS);
        uint64_t special = 0;
        size_t k = 0;
        int r = 0;

        s.old = cop_parent_proc(d->parent, d->tree.procs[proc].nspid);
        for (size_t i = 0; i < vs->count && r == 0; i++) {
                const struct cop_vma *v = &vs->list[i];
                if (v->special) {
                        special += note_vdso(ip, v);
                        continue;
                }
                struct cop_run piece = {0};
                while (k < runs.count && runs.list[k].end <= v->start)
                        k++;
                if (k < runs.count &&
                    runs.list[k].start < v->start) /* begins in an area that is not saved: vvar, our own */
                        runs.list[k].start = v->start;
                size_t first = k, n;
                /* Runs are joined across neighbouring areas: cut them at the border. */
                while (k < runs.count && runs.list[k].end <= v->end && runs.list[k].start < v->end)
                        k++;
                n = k - first;
                if (k < runs.count && runs.list[k].start < v->end && !(v->flags & IMG_VMA_SHARED)) {
                        piece = runs.list[k];
                        runs.list[k].end = v->end;
                        n++;
                }
                r = check_area(d, proc, v, err);
                if (r == 0)
                        r = dump_area(&s, v, runs.list + first, n, err);
                if (n > k - first) { /* the rest belongs to the next area */
                        runs.list[k].start = v->end;
                        runs.list[k].end = piece.end;
                }
                ip = cop_image_record(d->writer, IMG_PROCS, proc);
        }
        if (r == 0)
                finish_area(&s);
        if (r == 0)
                r = check_vdso(d, proc, special, err);
        ip = cop_image_record(d->writer, IMG_PROCS, proc);
        ip->first_vma = first_vma;
        ip->vmas = cop_image_count(d->writer, IMG_VMAS) - first_vma;
        if (r == 0)
                r = dump_guards(d, proc, scan->pagemap_fd, err);
        if (r == 0)
                r = write_new(d, proc, first_extent, err);
        free(s.extents);
        free(s.patches);
        return r;
}

static int dump_process(struct cop_dump *d, uint32_t proc, struct cop_error *err)
{
        struct cop_runs hot = {0};
        int found = cop_dump_hot_begin(d, proc, &hot);
        int r = found == 0 ? dump_areas(d, proc, err) : 0;

        if (found == 0 && r == 0)
                found = cop_dump_hot_end(d, proc, &hot);
        free(hot.list);
        return found < 0 ? cop_error_errno(err, -found, "collecting memory") : r;
}

/* With these memory is more than it looks: what lies in the place of such an area now is not taken for a part of it. */
#define FLAGS_OF_FEW (IMG_VMA_WIPEONFORK | IMG_VMA_DROPPABLE | IMG_VMA_DONTFORK | IMG_VMA_SEALED)

/* An area that has grown by mprotect over those behind it, as an arena of malloc does within what it has reserved: all of it was anonymous
 * memory, and alike but for what may be done with it.  Pieces that the kernel has made one area are alike. */
static bool has_grown(const struct img_vma *old, const struct img_vma *end, const struct cop_vma *v)
{
        const struct img_vma *next = old;

        while (next->end < v->end) {
                if (next + 1 == end || next[1].start != next->end || next[1].file != IMG_NONE ||
                    ((next[1].flags ^ old->flags) & ~(uint32_t)FLAGS_OF_MAPS))
                        return false;
                next++;
        }
        return old->file == IMG_NONE;
}

/* end: of the areas of old's process. */
static bool may_inherit(const struct img_vma *old, const struct img_vma *end, const struct cop_vma *v)
{
        bool equal = old->start == v->start && old->end == v->end;

        return old->start <= v->start && (old->flags & FLAGS_OF_MAPS) == (v->flags & FLAGS_OF_MAPS) &&
               (equal || !(old->flags & FLAGS_OF_FEW)) && (v->end <= old->end || has_grown(old, end, v));
}

/* Attributes that only smaps tells (walking all page tables for it) are taken from the parent's areas where an area lies
 * within one of equal protection; false when one does not, or when more lie there than did.  A heap or stack that grew is
 * known by its name. */

static bool inherit_flags(const struct cop_dump *d, uint32_t proc, struct cop_vmas *vs)
{
        const struct img_proc *p = cop_parent_proc(d->parent, d->tree.procs[proc].nspid);
        const struct img_vma *old = NULL, *last = NULL;
        uint32_t k = 0, seams = 0;

        for (size_t i = 0; i < vs->count; i++) {
                struct cop_vma *v = &vs->list[i];
                if (v->special)
                        continue;
                last = old;
                old = NULL;
                while (p && k < p->vmas && IMG_RECORD(d->parent, IMG_VMAS, img_vma, p->first_vma + k)->end <= v->start)
                        k++;
                if (p && k < p->vmas)
                        old = IMG_RECORD(d->parent, IMG_VMAS, img_vma, p->first_vma + k);
                seams = old != last ? 0 : seams + (old && is_seam(vs, v - 1, v));
                if (old && seams > old->seams)
                        return false;
                if (old && may_inherit(old, IMG_RECORD(d->parent, IMG_VMAS, img_vma, p->first_vma) + p->vmas, v))
                        v->flags = old->flags;
                else if (v->heap || v->stack)
                        v->flags |= IMG_VMA_MAYWRITE;
                else
                        return false;
        }
        return true;
}

static int collect_areas(struct cop_dump *d, uint32_t i, struct cop_error *err)
{
        int r;

        if (d->parent) {
                r = cop_procfs_vmas(d->tree.procs[i].dir_fd, false, &d->vmas[i], err);
                if (r < 0 || inherit_flags(d, i, &d->vmas[i]))
                        return r;
                cop_vmas_done(&d->vmas[i]);
        }
        return cop_procfs_vmas(d->tree.procs[i].dir_fd, true, &d->vmas[i], err);
}

int cop_collect_memory(struct cop_dump *d, struct cop_error *err)
{
        d->vmas = calloc(d->tree.count, sizeof(*d->vmas));
        if (!d->vmas)
                return cop_error_errno(err, ENOMEM, "collecting memory");
        for (uint32_t i = 0; i < d->tree.count; i++) {
                int r = d->tree.procs[i].zombie ? 0 : collect_areas(d, i, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

int cop_dump_memory(struct cop_dump *d, struct cop_error *err)
{
        for (uint32_t i = 0; i < d->tree.count; i++) {
                if (d->tree.procs[i].zombie)
                        continue;
                int r = dump_process(d, i, err);
                if (r < 0)
                        return r;
        }
        return 0;
}
