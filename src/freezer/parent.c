#include "freezer/parent.h"

#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

const struct img_proc *cop_parent_proc(const struct cop_image *im, pid_t nspid)
{
        for (uint32_t i = 0; im && i < im->count[IMG_PROCS]; i++) {
                const struct img_proc *p = IMG_RECORD(im, IMG_PROCS, img_proc, i);
                if (p->pid == nspid && p->state != IMG_ZOMBIE)
                        return p;
        }
        return NULL;
}

static const struct img_extent *find_extent(const struct cop_image *im, uint32_t first, uint32_t n, uint64_t address)
{
        uint32_t low = 0, high = n;

        while (low < high) {
                uint32_t mid = (low + high) / 2;
                const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, first + mid);
                if (e->address + (uint64_t)e->pages * IMG_PAGE <= address)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < n ? IMG_RECORD(im, IMG_EXTENTS, img_extent, first + low) : NULL;
}

bool cop_parent_piece(const struct cop_image *im, const struct img_vma *v, uint64_t at, uint64_t end,
                      struct img_extent *ret)
{
        const struct img_extent *patch = find_extent(im, v->first_patch, v->patches, at);
        const struct img_extent *base = find_extent(im, v->first_extent, v->extents, at);
        const struct img_extent *e = patch && patch->address <= at ? patch : base;

        if (!e || e->address > at)
                return false;
        uint64_t e_end = e->address + (uint64_t)e->pages * IMG_PAGE, stop = MIN_OF(end, e_end);
        if (e == base && patch && patch->address > at)
                stop = MIN_OF(stop, patch->address);
        *ret = (struct img_extent){
                .address = at,
                .offset = e->offset + (at - e->address),
                .pages = (uint32_t)((stop - at) / IMG_PAGE),
                .source = e->source,
                .checksum = e->address == at && stop == e_end ? e->checksum : 0,
        };
        return true;
}

static const struct img_vma *find_area(const struct cop_image *im, const struct img_proc *p, uint64_t address)
{
        uint32_t low = 0, high = p->vmas;

        while (low < high) {
                uint32_t mid = (low + high) / 2;
                if (IMG_RECORD(im, IMG_VMAS, img_vma, p->first_vma + mid)->end <= address)
                        low = mid + 1;
                else
                        high = mid;
        }
        const struct img_vma *v = low < p->vmas ? IMG_RECORD(im, IMG_VMAS, img_vma, p->first_vma + low) : NULL;
        return v && v->start <= address ? v : NULL;
}

static bool has_pages(const struct cop_image *im, const struct img_vma *v, uint64_t start, uint64_t end,
                      uint32_t source, uint64_t offset)
{
        for (uint32_t i = 0; i < v->extents; i++) {
                const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, v->first_extent + i);
                if (e->source == source && e->offset - e->address == offset - start && e->address < end &&
                    e->address + (uint64_t)e->pages * IMG_PAGE > start)
                        return true;
        }
        return false;
}

const struct img_vma *cop_parent_file_area(const struct cop_image *im, const struct img_proc *p, uint64_t start,
                                           uint64_t end, uint32_t source, uint64_t offset)
{
        const struct img_vma *v = p ? find_area(im, p, start) : NULL;

        for (uint32_t i = 0; !p && i < im->count[IMG_PROCS]; i++) {
                v = find_area(im, IMG_RECORD(im, IMG_PROCS, img_proc, i), start);
                if (v && v->file != IMG_NONE && has_pages(im, v, start, end, source, offset))
                        break;
                v = NULL;
        }
        return v && v->file != IMG_NONE && !(v->flags & IMG_VMA_SHARED) ? v : NULL;
}

bool cop_parent_page(const struct cop_image *im, const struct img_proc *p, uint64_t address, void *ret)
{
        const struct img_vma *v = p ? find_area(im, p, address) : NULL;
        struct img_extent e;

        return v && cop_parent_piece(im, v, address, address + IMG_PAGE, &e) &&
               pread(im->source_fds[e.source], ret, IMG_PAGE, (off_t)e.offset) == IMG_PAGE;
}

bool cop_parent_has(const struct cop_image *im, const struct img_proc *p, uint64_t address, const void *page)
{
        char there[IMG_PAGE];

        return cop_parent_page(im, p, address, there) && memcmp(page, there, IMG_PAGE) == 0;
}
