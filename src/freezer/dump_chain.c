/* Chains are kept short.
 *
 * Theory of operation.  What an image has written and later ones do not write again stays in its page file, so without this a session would
 * have a page file more with each cell: a link, a descriptor and a mapping in every freeze and thaw.  When there are many, the pages that are
 * still in use of those with the fewest are copied to the image's own page file.  What is copied together has many pages, and is not
 * soon copied again.  A tree that runs on does so meanwhile.
 *
 * Page files that such a tree maps itself stay in the list of sources.  Where their pages have been copied to is remembered with its
 * tracker, so that the next image refers to the copies, too.  Page files never change: so that stays true, and is of use as long as both
 * files are in the chain.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "freezer/dump.h"
#include "freezer/tracker.h"

#define SOURCES_MAX 16  /* in use */
#define SOURCES_LEFT 8  /* when there were more */
#define PAGES_MAX 2048U /* copied for one image, 8 MiB */

/* ---- where pages have been copied to ---- */

static int compare_moves(const void *a, const void *b)
{
        return cop_image_compare_places(&((const struct cop_dump_move *)a)->from,
                                        &((const struct cop_dump_move *)b)->from);
}

int cop_dump_chain_begin(struct cop_dump *d, struct cop_error *err)
{
        struct cop_tracker *t = d->request->tracker;
        size_t kept = 0;

        if (!t || !d->parent || t->move_count == 0)
                return 0;
        d->moves = calloc(t->move_count, sizeof(*d->moves));
        if (!d->moves)
                return cop_error_errno(err, ENOMEM, "freezing");
        for (size_t i = 0; i < t->move_count; i++) {
                const struct cop_tracker_move *m = &t->moves[i];
                int from = cop_image_find_source(d->writer, m->from_id),
                    to = cop_image_find_source(d->writer, m->to_id);
                if (from < 0 || to < 0)
                        continue;
                d->moves[kept] =
                        (struct cop_dump_move){.from = {.source = (uint32_t)from, .offset = m->from, .pages = m->pages},
                                               .to = {.source = (uint32_t)to, .offset = m->to, .pages = m->pages}};
                t->moves[kept++] = *m;
        }
        d->move_count = t->move_count = kept;
        qsort(d->moves, kept, sizeof(*d->moves), compare_moves);
        return 0;
}

void cop_dump_follow(const struct cop_dump *d, struct img_extent *e)
{
        size_t low = 0, high = d->move_count;

        while (low < high) { /* the first that ends behind the beginning of e */
                size_t mid = (low + high) / 2;
                const struct img_extent *from = &d->moves[mid].from;
                if (from->source < e->source ||
                    (from->source == e->source && from->offset + (uint64_t)from->pages * IMG_PAGE <= e->offset))
                        low = mid + 1;
                else
                        high = mid;
        }
        const struct cop_dump_move *m = low < d->move_count ? &d->moves[low] : NULL;
        uint64_t end = e->offset + (uint64_t)e->pages * IMG_PAGE;
        if (!m || m->from.source != e->source || m->from.offset >= end)
                return;
        if (m->from.offset > e->offset) { /* as far as it lies where it lay */
                e->pages = (uint32_t)((m->from.offset - e->offset) / IMG_PAGE);
                return;
        }
        end = MIN_OF(end, m->from.offset + (uint64_t)m->from.pages * IMG_PAGE);
        e->pages = (uint32_t)((end - e->offset) / IMG_PAGE);
        e->source = m->to.source;
        e->offset = m->to.offset + (e->offset - m->from.offset);
        e->checksum = 0;
}

static int remember(struct cop_dump *d, const struct img_extent *from, const struct img_extent *to)
{
        struct cop_tracker *t = d->request->tracker;
        struct cop_tracker_move m = {.from = from->offset, .to = to->offset, .pages = from->pages};

        if (t->move_count == t->moves_allocated) {
                size_t n = t->moves_allocated ? 2 * t->moves_allocated : 256;
                struct cop_tracker_move *bigger = reallocarray(t->moves, n, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                t->moves = bigger;
                t->moves_allocated = n;
        }
        memcpy(m.from_id, IMG_RECORD(d->parent, IMG_SOURCES, img_source, from->source - 1)->id, IMG_ID_MAX);
        snprintf(m.to_id, sizeof(m.to_id), "%s", cop_image_writer_id(d->writer));
        t->moves[t->move_count++] = m;
        return 0;
}

/* ---- which are copied ---- */

struct source {
        uint64_t pages; /* in use */
        bool copied;
};

/* The one with the fewest pages of those that are used and not chosen yet, or NULL. */
static struct source *smallest(struct source *sources, size_t count)
{
        struct source *found = NULL;

        for (size_t i = 0; i < count; i++)
                if (sources[i].pages > 0 && !sources[i].copied && (!found || sources[i].pages < found->pages))
                        found = &sources[i];
        return found;
}

/* Whether there is one to be copied. */
static bool choose(struct source *sources, size_t count)
{
        size_t used = 0;
        uint64_t pages = 0;
        bool any = false;

        for (size_t i = 0; i < count; i++)
                used += sources[i].pages > 0;
        while (used > (any ? SOURCES_LEFT : SOURCES_MAX)) {
                struct source *s = smallest(sources, count);
                if (!s || (pages += s->pages) > PAGES_MAX)
                        break;
                s->copied = any = true;
                used--;
        }
        return any;
}

/* ---- the copies ---- */

struct shared {
        const struct img_extent *extent; /* borrowed */
        struct img_extent *first;        /* borrowed: the first extent of the same pages, which may be this one */
};

static int compare_places(const void *a, const void *b)
{
        const struct img_extent *x = ((const struct shared *)a)->extent, *y = ((const struct shared *)b)->extent;

        int r = cop_image_compare_places(x, y);

        if (r == 0 && x->pages != y->pages)
                r = x->pages < y->pages ? -1 : 1;
        return r != 0 ? r : x < y ? -1 : x > y;
}

static int compare_extents(const void *a, const void *b)
{
        const struct img_extent *x = ((const struct shared *)a)->extent, *y = ((const struct shared *)b)->extent;

        return x < y ? -1 : x > y;
}

/* Processes that were forked from each other share pages: those are copied once. */
static void find_shared(struct shared *list, size_t n)
{
        qsort(list, n, sizeof(*list), compare_places);
        for (size_t i = 1; i < n; i++) {
                const struct img_extent *x = list[i - 1].first, *y = list[i].extent;
                if (x->source == y->source && x->offset == y->offset && x->pages == y->pages)
                        list[i].first = list[i - 1].first;
        }
        qsort(list, n, sizeof(*list), compare_extents);
}

static int copy_extent(struct cop_dump *d, struct img_extent *e, char *buffer, struct cop_error *err)
{
        const struct img_extent old = *e;
        const struct img_source *s = IMG_RECORD(d->parent, IMG_SOURCES, img_source, old.source - 1);
        size_t n = (size_t)old.pages * IMG_PAGE;
        ssize_t got = pread(d->parent->source_fds[old.source - 1], buffer, n, (off_t)old.offset);
        int r;

        e->checksum = XXH3_64bits(buffer, n) | 1;
        if (got != (ssize_t)n || (old.checksum && old.checksum != e->checksum))
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "the memory image is damaged: pages of %s at %#llx are not what they were", s->id,
                                     (unsigned long long)old.offset);
        r = n >= COP_COPY_SIZE
                    ? cop_image_write_aligned(d->writer, old.address, COP_COPY_SIZE, buffer, n, &e->offset, err)
                    : cop_image_write_pages(d->writer, buffer, n, &e->offset, err);
        if (r < 0)
                return r;
        e->source = 0;
        d->pages_written += old.pages;
        if (d->request->tracker && cop_image_is_pinned(d->writer, old.source) && remember(d, &old, e) < 0)
                return cop_error_errno(err, ENOMEM, "shortening the chain of images");
        return 0;
}

static int copy_all(struct cop_dump *d, struct img_extent *extents, uint32_t count, const struct source *sources,
                    struct cop_error *err)
{
        _cleanup_free_ char *buffer = malloc(PAGES_MAX * IMG_PAGE);
        _cleanup_free_ struct shared *list = calloc(PAGES_MAX, sizeof(*list)); /* an extent has a page at least */
        size_t n = 0;
        int r = 0;

        if (!buffer || !list)
                return cop_error_errno(err, ENOMEM, "shortening the chain of images");
        for (uint32_t i = 0; i < count && n < PAGES_MAX; i++)
                if (extents[i].source < d->source_count && sources[extents[i].source].copied)
                        list[n++] = (struct shared){&extents[i], &extents[i]};
        find_shared(list, n);
        for (size_t i = 0; i < n && r == 0; i++) {
                struct img_extent *e = &extents[list[i].extent - extents];
                if (e == list[i].first) {
                        r = copy_extent(d, e, buffer, err);
                        continue;
                }
                e->source = list[i].first->source;
                e->offset = list[i].first->offset;
                e->checksum = list[i].first->checksum;
        }
        return r;
}

int cop_dump_shorten_chain(struct cop_dump *d, struct cop_error *err)
{
        uint32_t count = cop_image_count(d->writer, IMG_EXTENTS);
        struct img_extent *extents = cop_image_record(d->writer, IMG_EXTENTS, 0); /* nothing is added meanwhile */

        if (d->source_count <= SOURCES_MAX)
                return 0;
        _cleanup_free_ struct source *sources = calloc(d->source_count, sizeof(*sources));
        if (!sources)
                return cop_error_errno(err, ENOMEM, "shortening the chain of images");
        for (uint32_t i = 0; i < count; i++)
                if (extents[i].source > 0 && extents[i].source < d->source_count &&
                    (d->request->tracker || !cop_image_is_pinned(d->writer, extents[i].source)))
                        sources[extents[i].source].pages += extents[i].pages;
        return choose(sources, d->source_count) ? copy_all(d, extents, count, sources, err) : 0;
}
