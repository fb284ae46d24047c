/* Reading images: everything is checked here once, so that the rest may index the tables without looking. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "freezer/image.h"
#include "freezer/image_tables.h"

void cop_image_pages_name(const char id[IMG_ID_MAX], char ret[IMG_PAGES_NAME_MAX])
{
        snprintf(ret, IMG_PAGES_NAME_MAX, "pages-%.*s.img", IMG_ID_MAX - 1, id);
}

bool cop_image_is_pages_name(const char *name)
{
        return strncmp(name, "pages-", 6) == 0 && strspn(name + 6, "0123456789abcdef") == IMG_ID_MAX - 1 &&
               strcmp(name + 6 + IMG_ID_MAX - 1, ".img") == 0;
}

static int damaged(struct cop_error *err, const char *what)
{
        return cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "the memory image is damaged: %s", what);
}

static int check_header(struct cop_image *im, struct cop_error *err)
{
        const struct img_header *h = (const struct img_header *)im->map;
        const struct img_section *dir = (const struct img_section *)(h + 1);

        if (im->size < sizeof(*h) || memcmp(h->magic, IMG_MAGIC, sizeof(h->magic)) != 0)
                return damaged(err, "meta.img has no header");
        if (h->version < IMG_VERSION_OLDEST || h->version > IMG_VERSION)
                return cop_error_set(err, EPROTO, COP_ERR_image_mismatch,
                                     "the memory image has format %u, this engine reads %u to %u", h->version,
                                     IMG_VERSION_OLDEST, IMG_VERSION);
        if (h->section_count != (h->version < 5 ? IMG_HOT : IMG_SECTION_MAX) - 1U ||
            im->size < sizeof(*h) + h->section_count * sizeof(*dir))
                return damaged(err, "meta.img has a wrong directory");
        struct img_header copy = *h;
        copy.checksum = 0;
        XXH3_state_t *state = XXH3_createState();
        if (!state)
                return cop_error_errno(err, ENOMEM, "opening the image");
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, &copy, sizeof(copy));
        XXH3_64bits_update(state, dir, h->section_count * sizeof(*dir));
        uint64_t sum = XXH3_64bits_digest(state);
        XXH3_freeState(state);
        if (sum != h->checksum)
                return damaged(err, "the header of meta.img fails its checksum");
        if (h->file_size != im->size)
                return damaged(err, "meta.img is cut or has grown");
        if (!memchr(h->id, 0, IMG_ID_MAX) || !memchr(h->parent_id, 0, IMG_ID_MAX) ||
            !memchr(h->kernel, 0, sizeof(h->kernel)) || !memchr(h->engine, 0, sizeof(h->engine)))
                return damaged(err, "the header of meta.img has an unterminated name");
        im->header = h;
        return 0;
}

static int check_sections(struct cop_image *im, struct cop_error *err)
{
        const struct img_section *dir = (const struct img_section *)(im->header + 1);
        char what[96];

        for (unsigned i = 0; i < im->header->section_count; i++) {
                const struct img_section *s = &dir[i];
                snprintf(what, sizeof(what), "section %s", cop_image_section_name(s->kind));
                if (s->kind != i + 1 || s->record_size != cop_image_record_size(s->kind) || s->count > UINT32_MAX ||
                    s->offset > im->size || s->count * s->record_size > im->size - s->offset || s->offset % 64)
                        return damaged(err, what);
                if (XXH3_64bits(im->map + s->offset, s->count * s->record_size) != s->checksum) {
                        snprintf(what, sizeof(what), "section %s fails its checksum", cop_image_section_name(s->kind));
                        return damaged(err, what);
                }
                im->table[s->kind] = im->map + s->offset;
                im->count[s->kind] = (uint32_t)s->count;
        }
        return 0;
}

static bool ref_ok(const struct cop_image *im, const struct img_ref *r)
{
        return (uint64_t)r->offset + r->length < im->count[IMG_HEAP];
}

static bool string_ok(const struct cop_image *im, const struct img_ref *r)
{
        return ref_ok(im, r) && ((const char *)im->table[IMG_HEAP])[r->offset + r->length] == 0;
}

static bool range_ok(const struct cop_image *im, enum img_section_kind kind, uint32_t first, uint32_t n)
{
        return (uint64_t)first + n <= im->count[kind];
}

static bool index_ok(const struct cop_image *im, enum img_section_kind kind, uint32_t i)
{
        return i == IMG_NONE || i < im->count[kind];
}

static bool check_proc(const struct cop_image *im, uint32_t i)
{
        const struct img_proc *p = IMG_RECORD(im, IMG_PROCS, img_proc, i);

        return (i == 0 ? p->parent == IMG_NONE && p->state != IMG_ZOMBIE : p->parent < i) && p->pid > 0 &&
               p->state >= IMG_RUNNING && p->state <= IMG_ZOMBIE &&
               range_ok(im, IMG_THREADS, p->first_thread, p->threads) && (p->threads > 0) == (p->state != IMG_ZOMBIE) &&
               range_ok(im, IMG_VMAS, p->first_vma, p->vmas) && range_ok(im, IMG_FDS, p->first_fd, p->fds) &&
               range_ok(im, IMG_SIGNALS, p->first_signal, p->signals) &&
               range_ok(im, IMG_TIMERS, p->first_timer, p->timers) &&
               range_ok(im, IMG_LOCKS, p->first_lock, p->locks) &&
               range_ok(im, IMG_GUARDS, p->first_guard, p->guards) && index_ok(im, IMG_FILES, p->exe) &&
               index_ok(im, IMG_FILES, p->tty) && index_ok(im, IMG_FILES, p->cwd_file) &&
               index_ok(im, IMG_FILES, p->root_file) && string_ok(im, &p->cwd) && string_ok(im, &p->root) &&
               string_ok(im, &p->comm) && ref_ok(im, &p->sigactions) && ref_ok(im, &p->auxv) &&
               ((!p->shares_fs && !p->shares_files) || i > 0) &&
               (p->state == IMG_ZOMBIE || p->sigactions.length == 64UL * 32);
}

static bool check_extents(const struct cop_image *im, const struct img_vma *v, uint32_t first, uint32_t n)
{
        uint64_t last = v->start;

        if (!range_ok(im, IMG_EXTENTS, first, n))
                return false;
        for (uint32_t k = 0; k < n; k++) {
                const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, first + k);
                if (e->address < last || e->address % IMG_PAGE || e->address > v->end ||
                    (uint64_t)e->pages * IMG_PAGE > v->end - e->address)
                        return false;
                last = e->address + (uint64_t)e->pages * IMG_PAGE;
        }
        return true;
}

static bool check_vma(const struct cop_image *im, uint32_t i)
{
        const struct img_vma *v = IMG_RECORD(im, IMG_VMAS, img_vma, i);

        return v->start < v->end && (v->start | v->end | v->offset) % IMG_PAGE == 0 && v->end <= IMG_ADDRESS_END &&
               index_ok(im, IMG_FILES, v->file) && string_ok(im, &v->name) &&
               check_extents(im, v, v->first_extent, v->extents) && check_extents(im, v, v->first_patch, v->patches);
}

static bool check_file(const struct cop_image *im, uint32_t i)
{
        const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, i);

        return f->kind > 0 && f->kind < IMG_FILE_KIND_MAX && string_ok(im, &f->path) && ref_ok(im, &f->data) &&
               ((f->kind != IMG_FILE_DIRECTORY && f->kind != IMG_FILE_KEPT) || string_ok(im, &f->data)) &&
               ref_ok(im, &f->peer) && string_ok(im, &f->place) && ref_ok(im, &f->filter) && ref_ok(im, &f->groups) &&
               range_ok(im, IMG_EXTENTS, f->first_extent, f->extents) &&
               range_ok(im, IMG_WATCHES, f->first_watch, f->watches) &&
               range_ok(im, IMG_PACKETS, f->first_packet, f->packets);
}

static bool check_packet(const struct cop_image *im, uint32_t i)
{
        const struct img_packet *p = IMG_RECORD(im, IMG_PACKETS, img_packet, i);

        if (!ref_ok(im, &p->data) || !ref_ok(im, &p->address) || !ref_ok(im, &p->files) ||
            !ref_ok(im, &p->credentials) || p->files.length % 4 || p->files.offset % 4)
                return false;
        const uint32_t *files = cop_image_at(im, &p->files);
        for (uint32_t k = 0; k < p->files.length / 4; k++)
                if (files[k] >= im->count[IMG_FILES])
                        return false;
        return true;
}

static bool check_extent(const struct cop_image *im, uint32_t i)
{
        const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, i);

        if (e->source >= im->count[IMG_SOURCES] || e->offset % IMG_PAGE)
                return false;
        uint64_t size = IMG_RECORD(im, IMG_SOURCES, img_source, e->source)->size;
        return e->offset <= size && (uint64_t)e->pages * IMG_PAGE <= size - e->offset;
}

static bool check_thread(const struct cop_image *im, uint32_t i)
{
        const struct img_thread *t = IMG_RECORD(im, IMG_THREADS, img_thread, i);

        return t->tid > 0 && ref_ok(im, &t->xstate) && range_ok(im, IMG_SIGNALS, t->first_signal, t->signals) &&
               range_ok(im, IMG_FILTERS, t->first_filter, t->filters) && ref_ok(im, &t->affinity) &&
               ref_ok(im, &t->creds.groups) && t->creds.groups.length % 4 == 0 &&
               (!t->seccomp_strict || t->filters == 0) && memchr(t->comm, 0, sizeof(t->comm));
}

static bool check_hot(const struct cop_image *im, uint32_t i)
{
        const struct img_hot *h = IMG_RECORD(im, IMG_HOT, img_hot, i), *last = i > 0 ? h - 1 : NULL;

        return h->proc < im->count[IMG_PROCS] && h->address % IMG_PAGE == 0 && h->pages > 0 &&
               h->address < IMG_ADDRESS_END && (uint64_t)h->pages * IMG_PAGE <= IMG_ADDRESS_END - h->address &&
               (!last || last->proc < h->proc ||
                (last->proc == h->proc && last->address + (uint64_t)last->pages * IMG_PAGE <= h->address));
}

static bool check_other(const struct cop_image *im, unsigned kind, uint32_t i)
{
        switch (kind) {
        case IMG_TREE: {
                const struct img_tree *t = IMG_RECORD(im, IMG_TREE, img_tree, i);
                return im->count[IMG_TREE] == 1 && string_ok(im, &t->hostname) && string_ok(im, &t->domainname) &&
                       t->max_fd < 1U << 24;
        }
        case IMG_FDS: {
                const struct img_fd *fd = IMG_RECORD(im, IMG_FDS, img_fd, i);
                return fd->fd >= 0 && fd->file < im->count[IMG_FILES];
        }
        case IMG_WATCHES: {
                const struct img_watch *w = IMG_RECORD(im, IMG_WATCHES, img_watch, i);
                return index_ok(im, IMG_FILES, w->file) && index_ok(im, IMG_PROCS, w->process) &&
                       string_ok(im, &w->path);
        }
        case IMG_GUARDS: {
                const struct img_guard *g = IMG_RECORD(im, IMG_GUARDS, img_guard, i);
                return g->start < g->end && (g->start | g->end) % IMG_PAGE == 0;
        }
        case IMG_FILTERS: {
                const struct img_filter *f = IMG_RECORD(im, IMG_FILTERS, img_filter, i);
                return ref_ok(im, &f->program) && f->program.length % 8 == 0 && f->program.length <= 4096 * 8;
        }
        case IMG_HOT:
                return check_hot(im, i);
        default:
                return true;
        }
}

static bool check_record(const struct cop_image *im, unsigned kind, uint32_t i)
{
        switch (kind) {
        case IMG_PROCS:
                return check_proc(im, i);
        case IMG_THREADS:
                return check_thread(im, i);
        case IMG_VMAS:
                return check_vma(im, i);
        case IMG_EXTENTS:
                return check_extent(im, i);
        case IMG_FILES:
                return check_file(im, i);
        case IMG_PACKETS:
                return check_packet(im, i);
        case IMG_HEAP:
                return true;
        default:
                return check_other(im, kind, i);
        }
}

static int check_records(struct cop_image *im, struct cop_error *err)
{
        char what[96];

        if (im->count[IMG_TREE] != 1 || im->count[IMG_PROCS] < 1 || im->count[IMG_SOURCES] < 1 ||
            im->count[IMG_HEAP] < 1)
                return damaged(err, "a required section is empty");
        for (unsigned kind = 2; kind < IMG_SECTION_MAX; kind++)
                for (uint32_t i = 0; i < im->count[kind]; i++)
                        if (!check_record(im, kind, i)) {
                                snprintf(what, sizeof(what), "section %s, record %u", cop_image_section_name(kind), i);
                                return damaged(err, what);
                        }
        return 0;
}

static int open_sources(struct cop_image *im, struct cop_error *err)
{
        uint32_t n = im->count[IMG_SOURCES];

        im->source_fds = malloc(n * sizeof(int));
        if (!im->source_fds)
                return cop_error_errno(err, ENOMEM, "opening the image");
        for (uint32_t i = 0; i < n; i++)
                im->source_fds[i] = -EBADF;
        for (uint32_t i = 0; i < n; i++) {
                const struct img_source *s = IMG_RECORD(im, IMG_SOURCES, img_source, i);
                char name[IMG_PAGES_NAME_MAX];
                struct stat st;
                cop_image_pages_name(s->id, name);
                if (strchr(name, '/'))
                        return damaged(err, "section sources");
                im->source_fds[i] = openat(im->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
                if (im->source_fds[i] < 0 || fstat(im->source_fds[i], &st) < 0)
                        return cop_error_set(err, errno, COP_ERR_image_damaged,
                                             "the memory image is damaged: %s is missing", name);
                if ((uint64_t)st.st_size < s->size)
                        return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                             "the memory image is damaged: %s is cut", name);
        }
        return 0;
}

int cop_image_check_host(const struct img_header *h, struct cop_error *err)
{
        struct img_header here = {0};

        cop_image_describe_host(&here);
        if (strcmp(here.kernel, h->kernel) != 0)
                return cop_error_set(err, EXDEV, COP_ERR_image_mismatch,
                                     "kernel_mismatch: the image was made on kernel \"%s\", this is \"%s\"", h->kernel,
                                     here.kernel);
        for (size_t i = 0; i < ELEMENTSOF(here.cpu_words); i++)
                if (h->cpu_words[i] & ~here.cpu_words[i])
                        return cop_error_set(err, EXDEV, COP_ERR_image_mismatch,
                                             "cpu_mismatch: the image was made on a CPU with features this one lacks "
                                             "(word %zu: %#x)",
                                             i, h->cpu_words[i] & ~here.cpu_words[i]);
        if (h->xfeatures != here.xfeatures)
                return cop_error_set(err, EXDEV, COP_ERR_image_mismatch,
                                     "cpu_mismatch: vector state components %#llx in the image, %#llx here",
                                     (unsigned long long)h->xfeatures, (unsigned long long)here.xfeatures);
        return 0;
}

int cop_image_open(int dir_fd, bool host, struct cop_image **ret, struct cop_error *err)
{
        struct cop_image *im = calloc(1, sizeof(*im));
        struct stat st;
        int r;

        if (!im)
                return cop_error_errno(err, ENOMEM, "opening the image");
        im->dir_fd = dir_fd;
        _cleanup_close_ int fd = openat(dir_fd, "meta.img", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || fstat(fd, &st) < 0) {
                r = cop_error_set(err, errno, COP_ERR_image_damaged, "the memory image has no readable meta.img: %s",
                                  strerror(errno));
                goto fail;
        }
        im->size = (size_t)st.st_size;
        if (im->size < sizeof(struct img_header) || im->size > 2ULL << 30) {
                r = damaged(err, "meta.img is cut");
                goto fail;
        }
        void *map = mmap(NULL, im->size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        if (map == MAP_FAILED) {
                r = cop_error_errno(err, errno, "mapping meta.img");
                goto fail;
        }
        im->map = map;
        r = check_header(im, err);
        if (r == 0)
                r = check_sections(im, err);
        if (r == 0)
                r = check_records(im, err);
        if (r == 0)
                r = open_sources(im, err);
        if (r == 0 && host)
                r = cop_image_check_host(im->header, err);
        if (r < 0)
                goto fail;
        *ret = im;
        return 0;
fail:
        cop_image_free(im);
        return r;
}

void cop_image_free(struct cop_image *im)
{
        if (!im)
                return;
        for (uint32_t i = 0; im->source_fds && i < im->count[IMG_SOURCES]; i++)
                cop_close(im->source_fds[i]);
        free(im->source_fds);
        if (im->map)
                munmap((void *)(uintptr_t)im->map, im->size);
        free(im);
}

/* The first record of this process or a later one. */
static uint32_t first_hot(const struct cop_image *im, uint32_t proc)
{
        uint32_t low = 0, high = im->count[IMG_HOT];

        while (low < high) {
                uint32_t mid = low + (high - low) / 2;
                if (IMG_RECORD(im, IMG_HOT, img_hot, mid)->proc < proc)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

const struct img_hot *cop_image_hot(const struct cop_image *im, const struct img_proc *p, uint32_t *ret_count)
{
        uint32_t proc = (uint32_t)(p - IMG_RECORD(im, IMG_PROCS, img_proc, 0)), first = first_hot(im, proc);

        *ret_count = first_hot(im, proc + 1) - first;
        return IMG_RECORD(im, IMG_HOT, img_hot, first);
}

int cop_image_verify(const struct cop_image *im, struct cop_error *err)
{
        size_t chunk = 1UL << 20;
        _cleanup_free_ char *buf = malloc(chunk);
        XXH3_state_t *state = XXH3_createState();
        int r = 0;

        if (!buf || !state)
                r = cop_error_errno(err, ENOMEM, "verifying the image");
        for (uint32_t i = 0; r == 0 && i < im->count[IMG_EXTENTS]; i++) {
                const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, i);
                size_t left = (size_t)e->pages * IMG_PAGE;
                off_t at = (off_t)e->offset;
                if (e->checksum == 0)
                        continue;
                XXH3_64bits_reset(state);
                while (left > 0) {
                        ssize_t n = pread(im->source_fds[e->source], buf, MIN_OF(left, chunk), at);
                        if (n <= 0)
                                break;
                        XXH3_64bits_update(state, buf, (size_t)n);
                        left -= (size_t)n;
                        at += n;
                }
                if (left > 0 || (XXH3_64bits_digest(state) | 1) != e->checksum)
                        r = cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                          "the memory image is damaged: pages at %#llx fail their checksum",
                                          (unsigned long long)e->address);
        }
        XXH3_freeState(state);
        return r;
}
