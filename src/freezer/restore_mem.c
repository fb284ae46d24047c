/* The table of system calls that replaces a stub's memory by the frozen one.
 *
 * Theory of operation.  The table, the trampoline, and all that its calls point to lie in one region at an address that
 * neither the stub nor the frozen process uses.  Order: the rseq area of the stub's libc is given up (the kernel writes to
 * it), everything outside the region is unmapped, the vdso comes first (it wants its old place), then the areas with
 * their pages, then what refers to them (mm fields, names, hints), then what is not memory (restore_process.c).
 *
 * Anonymous pages are mapped privately from the page file where a run is long, else copied into real anonymous memory
 * (restore_pages.c); stacks are always copied.  Written pages of a library's or program's data are mapped so, too, over its
 * mapping; those of other files are copied, since a file that is cut takes them away.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/rights.h"
#include "base/thread.h"
#include "freezer/pagemap.h"
#include "freezer/restore_table.h"
#include "freezer/sysv.h"
#include "freezer/timers.h"
#include "freezer/watch.h"

#define ARCH_MAP_VDSO_64 0x2003
#define MAP_DROPPABLE_ 0x08
#define SYS_MSEAL 462 /* since 6.10 */
#define SIG_RSEQ 0x53053053

/* ---- where the region can lie ---- */

static bool overlaps(const struct cop_restore *r, const struct img_proc *p, uint64_t start, uint64_t end)
{
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->start < end && v->end > start)
                        return true;
        }
        /* brk and the vdso have room of their own */
        return (p->mm[4] < end && p->mm[5] + (1ULL << 20) > start) || (p->vdso < end && p->vdso + p->vdso_size > start);
}

#define PLACES_FROM 0x10000000000ULL
#define PLACES_STEP 0x100000000ULL

/* The first address, `from` and so many steps on, where the frozen process has nothing; 0: there is none. */
static uint64_t next_place(const struct cop_restore *r, const struct img_proc *p, uint64_t from, size_t size)
{
        while (from < IMG_ADDRESS_END - size && overlaps(r, p, from, from + size))
                from += PLACES_STEP;
        return from < IMG_ADDRESS_END - size ? from : 0;
}

static int no_place(struct cop_error *err)
{
        return cop_error_set(err, ENOMEM, COP_ERR_start_failed, "no room for the trampoline");
}

static size_t count_extents(const struct cop_restore *r, const struct img_proc *p)
{
        size_t n = 0;

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                n += v->extents + v->patches;
        }
        return n;
}

/* Calls that copy, at most: one for each extent, and each time that one has copied all it can, and where two tasks share the work. */
static size_t count_copies(const struct cop_restore *r, const struct img_proc *p)
{
        uint64_t pages = 0;

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                for (uint32_t k = 0; k < v->extents; k++)
                        pages += IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_extent + k)->pages;
                for (uint32_t k = 0; k < v->patches; k++)
                        pages += IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_patch + k)->pages;
        }
        return count_extents(r, p) + pages / (COP_COPY_MAX / IMG_PAGE) + 2;
}

static size_t count_hot(const struct cop_restore *r, const struct img_proc *p)
{
        uint32_t n;

        (void)cop_image_hot(r->image, p, &n);
        return n;
}

/* Copying so little costs about what mapping it would, and leaves a process as it was: the same areas, no watch. */
static bool is_small(const struct cop_restore *r, const struct img_proc *p)
{
        uint64_t pages = 0;

        for (uint32_t i = 0; i < p->vmas && pages <= COP_PAGES_SMALL; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                for (uint32_t k = 0; k < v->extents; k++)
                        pages += IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_extent + k)->pages;
        }
        return pages <= COP_PAGES_SMALL;
}

static int make_region(struct cop_restore *r, const struct img_proc *p, struct cop_region *g, struct cop_error *err)
{
        size_t extents = count_extents(r, p), signals = cop_restore_signals(r, p), touches = extents + count_hot(r, p);
        size_t copies = count_copies(r, p);
        int32_t timers_to = cop_restore_timers_to(r, p);
        if (timers_to > COP_TIMER_NUMBER_MAX)
                return cop_error_set(err, ENOTSUP, COP_ERR_start_failed,
                                     "process %d cannot have its timer %d again: kernel 6.15 is needed", p->pid,
                                     timers_to);
        size_t ops = 512 + 3UL * p->fds + p->guards + p->locks + 10UL * p->vmas + 2 * copies + touches + signals * 3 +
                     3 * (size_t)(timers_to + 1);
        size_t helper = 2 * copies + touches + 16;
        size_t all = (ops + p->threads * (COP_THREAD_OPS + signals) + helper) * sizeof(struct cop_op);
        size_t filters = 0;
        for (uint32_t i = 0; i < p->threads; i++)
                for (uint32_t k = 0; k < RESTORE_THREAD(r, p->first_thread + i)->filters; k++)
                        filters += IMG_RECORD(r->image, IMG_FILTERS, img_filter,
                                              RESTORE_THREAD(r, p->first_thread + i)->first_filter + k)
                                           ->program.length +
                                   64;
        size_t data = filters + (2 * copies + touches) * sizeof(struct iovec) + p->threads * 8192UL + signals * 256 +
                      p->vmas * 256UL + (p->locks + p->fds) * 64UL + (size_t)(timers_to + 1) * 128 + 65536;
        uint64_t at = PLACES_FROM;
        size_t shared = (r->shared_size + 4095) & ~4095UL;
        size_t size = (shared + 4096 + all + data + 4095) & ~4095UL;
        char *start = MAP_FAILED;

        /* Where the stub has something the kernel says so. */
        for (; start == MAP_FAILED; at += PLACES_STEP) {
                at = next_place(r, p, at, size);
                if (at == 0)
                        return no_place(err);
                start = mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
                if (start == MAP_FAILED && errno != EEXIST)
                        return cop_error_errno(err, errno, "making room for the trampoline");
        }
        if (mmap(start, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->shared_fd, 0) == MAP_FAILED)
                return cop_error_errno(err, errno, "making room for the trampoline");
        memcpy(start + shared, cop_tramp_start, (size_t)(cop_tramp_end - cop_tramp_start));
        *g = (struct cop_region){.start = start, .size = size};
        g->main = (struct cop_table){.ops = (struct cop_op *)(start + shared + 4096), .max = ops};
        g->helper =
                (struct cop_table){.ops = g->main.ops + ops + p->threads * (COP_THREAD_OPS + signals), .max = helper};
        g->data = start + shared + 4096 + all;
        g->data_end = start + size;
        r->shared->place[r->self].region = PTR(start);
        r->shared->place[r->self].region_size = size;
        r->shared->place[r->self].code = PTR(start + shared);
        return 0;
}

/* The shared page where it is once the stub's memory is gone. */
static struct cop_restore_shared *shared_in(const struct cop_region *g)
{
        return (struct cop_restore_shared *)(void *)g->start;
}

/* ---- areas ---- */

static int protection(uint32_t flags)
{
        return (flags & IMG_VMA_READ ? PROT_READ : 0) | (flags & IMG_VMA_WRITE ? PROT_WRITE : 0) |
               (flags & IMG_VMA_EXEC ? PROT_EXEC : 0);
}

/* As the stacks of threads, which are given back when these end. */
static bool is_guarded(const struct cop_restore *r, const struct img_vma *v)
{
        const struct img_vma *all = IMG_RECORD(r->image, IMG_VMAS, img_vma, 0);

        return v > all && v[-1].end == v->start && !(v[-1].flags & (IMG_VMA_READ | IMG_VMA_WRITE | IMG_VMA_EXEC));
}

/* Short runs of memory that will be written soon are copied now, also because a range with a mapped one is watched, as when a thread's
 * stack is given back; what cannot be written, or is a program's data, of which little is written again, is mapped in any case. */
static bool mapped(const struct cop_restore *r, const struct img_vma *v, const struct img_extent *e)
{
        if (v->flags & (IMG_VMA_GROWSDOWN | IMG_VMA_LOCKED | IMG_VMA_SHARED | IMG_VMA_SEALED) ||
            r->request->flags & COP_THAW_COPY || r->unwatched)
                return false;
        if (!(v->flags & IMG_VMA_WRITE))
                return true;
        return v->file != IMG_NONE ? r->code[v->file]
                                   : e->pages >= (is_guarded(r, v) ? COP_RUN_MAPPED_GUARDED : COP_RUN_MAPPED);
}

/* Extents that continue each other, in memory and in the page file, are mapped with one call. */
static uint32_t join_extents(const struct cop_restore *r, const struct img_vma *v, uint32_t k, struct img_extent *ret)
{
        struct img_extent run = *IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_extent + k);

        for (k++; k < v->extents; k++) {
                const struct img_extent *e = IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_extent + k);
                uint64_t bytes = (uint64_t)run.pages * IMG_PAGE;
                if (e->source != run.source || e->address != run.address + bytes || e->offset != run.offset + bytes)
                        break;
                run.pages += e->pages;
        }
        *ret = run;
        return k;
}

static uint64_t segment_size(const struct img_file *f)
{
        return (f->arg[IMG_SYSV_SIZE] + IMG_PAGE - 1) & ~(uint64_t)(IMG_PAGE - 1);
}

/* Pieces of one attachment, which shmdt finds by where it begins. */
static bool same_attachment(const struct img_vma *a, const struct img_vma *b)
{
        return a->file == b->file && a->start - a->offset == b->start - b->offset;
}

/* shmat attaches whole segments only, and over nothing else: so it does it elsewhere, from where the pieces that are left are moved. */
static void map_segment(struct cop_restore *r, struct cop_region *g, const struct img_proc *p, uint32_t index)
{
        const struct img_vma *all = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma), *v = &all[index];
        const struct img_file *f = RESTORE_FILE(r, v->file);
        uint64_t flags = v->flags & IMG_VMA_MAYWRITE ? 0 : SHM_RDONLY;

        for (uint32_t i = 0; i < index; i++)
                if (same_attachment(&all[i], v))
                        return; /* moved with the first */
        for (uint32_t i = index; i < p->vmas; i++)
                if (same_attachment(&all[i], v) && all[i].flags & IMG_VMA_EXEC)
                        flags |= SHM_EXEC;
        struct cop_op *op =
                cop_table_add(g, &g->main, COP_OP_EXPECT, SYS_shmat, f->arg[IMG_SYSV_ID], g->segments, flags, 0, 0, 0);
        op->expect = (int64_t)g->segments;
        for (uint32_t i = index; i < p->vmas; i++) {
                uint64_t length = all[i].end - all[i].start;
                if (!same_attachment(&all[i], v))
                        continue;
                op = cop_table_add(g, &g->main, COP_OP_EXPECT, SYS_mremap, g->segments + all[i].offset, length, length,
                                   MREMAP_MAYMOVE | MREMAP_FIXED, all[i].start, 0);
                op->expect = (int64_t)all[i].start;
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_mprotect, all[i].start, length,
                              (uint64_t)protection(all[i].flags), 0, 0, 0);
        }
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_munmap, g->segments, segment_size(f), 0, 0, 0, 0);
}

/* Room for the largest segment, where nothing is. */
static int find_segments(struct cop_restore *r, struct cop_region *g, const struct img_proc *p, struct cop_error *err)
{
        uint64_t most = 0;

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->file != IMG_NONE && RESTORE_FILE(r, v->file)->kind == IMG_FILE_SYSV)
                        most = MAX_OF(most, segment_size(RESTORE_FILE(r, v->file)));
        }
        if (most == 0)
                return 0;
        uint64_t from = PTR(g->start);
        while (from < PTR(g->start) + g->size)
                from += PLACES_STEP;
        g->segments = next_place(r, p, from, most);
        return g->segments == 0 ? no_place(err) : 0;
}

static void add_locks(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        /* Those of shared descriptors are taken once, by whose descriptors they are: the last to take one is told as its holder. */
        for (uint32_t i = 0; i < p->locks && !p->shares_files; i++) {
                const struct img_lock *l = IMG_RECORD(r->image, IMG_LOCKS, img_lock, p->first_lock + i);
                struct flock fl = {
                        .l_type = l->write ? F_WRLCK : F_RDLCK,
                        .l_whence = SEEK_SET,
                        .l_start = (off_t)l->start,
                        .l_len = l->end == UINT64_MAX ? 0 : (off_t)(l->end - l->start + 1),
                };
                if (l->kind == IMG_LOCK_POSIX)
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_fcntl, (uint64_t)l->fd, F_SETLK,
                                      PTR(cop_region_put(g, &fl, sizeof(fl))), 0, 0, 0);
        }
}

static void map_area(struct cop_restore *r, struct cop_region *g, const struct img_proc *p, uint32_t index, int prot)
{
        const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + index);
        uint64_t length = v->end - v->start;
        int flags = MAP_FIXED | (v->flags & IMG_VMA_SHARED ? MAP_SHARED : MAP_PRIVATE) |
                    (v->flags & IMG_VMA_NORESERVE ? MAP_NORESERVE : 0) |
                    (v->flags & IMG_VMA_GROWSDOWN ? MAP_GROWSDOWN | MAP_STACK : 0);
        int fd = -1;

        if (v->flags & IMG_VMA_DROPPABLE)
                flags = MAP_FIXED | MAP_ANONYMOUS | MAP_DROPPABLE_;
        else if (v->file == IMG_NONE)
                flags |= MAP_ANONYMOUS;
        else if (RESTORE_FILE(r, v->file)->kind == IMG_FILE_SYSV) {
                map_segment(r, g, p, index);
                return;
        } else
                fd = r->objects[v->file];
        /* One extent that covers the area makes the anonymous mapping below it unnecessary. */
        if (v->extents > 0) {
                struct img_extent e;
                join_extents(r, v, 0, &e);
                if (e.address == v->start && (uint64_t)e.pages * IMG_PAGE == length && mapped(r, v, &e))
                        return;
        }
        struct cop_op *op = cop_table_add(g, &g->main, COP_OP_EXPECT, SYS_mmap, v->start, length, (uint64_t)prot,
                                          (uint64_t)flags, (uint64_t)(int64_t)fd, v->file == IMG_NONE ? 0 : v->offset);
        op->expect = (int64_t)v->start;
}

static void map_extents(struct cop_restore *r, struct cop_region *g, const struct img_vma *v, int prot,
                        struct cop_pieces *ret_copied)
{
        for (uint32_t k = 0; k < v->extents;) {
                struct img_extent e;
                k = join_extents(r, v, k, &e);
                if (!mapped(r, v, &e)) {
                        ret_copied->list[ret_copied->count++] = e;
                        continue;
                }
                /* The kernel makes one area of two that follow each other in memory and in the page file: that flag keeps what
                 * is of a file apart from anonymous memory. */
                struct cop_op *op = cop_table_add(g, &g->main, COP_OP_EXPECT, SYS_mmap, e.address,
                                                  (uint64_t)e.pages * IMG_PAGE, (uint64_t)prot,
                                                  MAP_FIXED | MAP_PRIVATE | (v->file == IMG_NONE ? MAP_NORESERVE : 0),
                                                  (uint64_t)r->sources[e.source], e.offset);
                op->expect = (int64_t)e.address;
        }
}

/* Patches replace what extents hold: they are copied after all of those, mapped or copied. */
static void list_patches(struct cop_restore *r, const struct img_proc *p, struct cop_pieces *ret)
{
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                for (uint32_t k = 0; k < v->patches; k++)
                        ret->list[ret->count++] = *IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_patch + k);
        }
}

/* What of the hot pages from *at on lies in an extent that is mapped; *at is then the first record that goes on behind it. */
static void add_hot(const struct img_hot *hot, uint32_t count, uint32_t *at, const struct img_extent *e,
                    struct cop_pieces *ret)
{
        uint64_t end = e->address + (uint64_t)e->pages * IMG_PAGE;

        for (; *at < count && hot[*at].address < end; (*at)++) {
                uint64_t hot_end = hot[*at].address + (uint64_t)hot[*at].pages * IMG_PAGE,
                         from = MAX_OF(hot[*at].address, e->address), to = MIN_OF(hot_end, end);
                if (from < to)
                        ret->list[ret->count++] =
                                (struct img_extent){.address = from, .pages = (uint32_t)((to - from) / IMG_PAGE)};
                if (hot_end > end)
                        break;
        }
}

/* Each piece lies in one extent and one record, so there are no more than of both together. */
static void list_hot(const struct cop_restore *r, const struct img_proc *p, struct cop_pieces *ret)
{
        uint32_t count, at = 0;
        const struct img_hot *hot = cop_image_hot(r->image, p, &count);

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                for (uint32_t k = 0; v->flags & IMG_VMA_WRITE && k < v->extents;) {
                        struct img_extent e;
                        k = join_extents(r, v, k, &e);
                        if (mapped(r, v, &e))
                                add_hot(hot, count, &at, &e, ret);
                }
        }
}

static bool copies_into(const struct cop_restore *r, const struct img_vma *v)
{
        for (uint32_t k = 0; k < v->extents;) {
                struct img_extent e;
                k = join_extents(r, v, k, &e);
                if (!mapped(r, v, &e))
                        return true;
        }
        return v->patches > 0;
}

static void add_hints(struct cop_restore *r, struct cop_region *g, const struct img_vma *v)
{
        static const struct {
                uint32_t flag;
                int advice;
        } hints[] = {
                {IMG_VMA_DONTFORK, MADV_DONTFORK},     {IMG_VMA_DONTDUMP, MADV_DONTDUMP},
                {IMG_VMA_WIPEONFORK, MADV_WIPEONFORK}, {IMG_VMA_HUGEPAGE, MADV_HUGEPAGE},
                {IMG_VMA_NOHUGEPAGE, MADV_NOHUGEPAGE}, {IMG_VMA_MERGEABLE, MADV_MERGEABLE},
                {IMG_VMA_SEQUENTIAL, MADV_SEQUENTIAL}, {IMG_VMA_RANDOM, MADV_RANDOM},
        };
        uint64_t length = v->end - v->start;

        for (size_t i = 0; i < ELEMENTSOF(hints); i++)
                /* A droppable area has wipe-on-fork and dont-dump by itself. */
                if (v->flags & hints[i].flag && !(v->flags & IMG_VMA_DROPPABLE))
                        cop_table_add(g, &g->main, 0, SYS_madvise, v->start, length, (uint64_t)hints[i].advice, 0, 0,
                                      0);
        if (v->flags & IMG_VMA_LOCKED)
                cop_table_add(g, &g->main, 0, SYS_mlock2, v->start, length, v->flags & IMG_VMA_LOCKONFAULT ? 1 : 0, 0,
                              0, 0);
        if (v->name.length)
                cop_table_add(g, &g->main, 0, SYS_prctl, 0x53564d41 /* PR_SET_VMA */, 0, v->start, length,
                              PTR(cop_region_put(g, cop_restore_string(r, &v->name), v->name.length + 1)), 0);
}

static int add_memory(struct cop_restore *r, struct cop_region *g, const struct img_proc *p, struct cop_error *err)
{
        size_t most = count_extents(r, p) + 1;
        _cleanup_free_ struct img_extent *copied = malloc(most * sizeof(*copied)),
                                         *patched = malloc(most * sizeof(*patched)),
                                         *hot = malloc((most + count_hot(r, p)) * sizeof(*hot));
        struct cop_pages pages = {.extents.list = copied, .patches.list = patched, .hot.list = hot};

        if (!copied || !patched || !hot)
                return cop_error_errno(err, ENOMEM, "rebuilding memory");
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                int prot = protection(v->flags) | (copies_into(r, v) ? PROT_WRITE : 0);
                map_area(r, g, p, i, prot);
                map_extents(r, g, v, prot, &pages.extents);
        }
        list_patches(r, p, &pages.patches);
        list_hot(r, p, &pages.hot);
        cop_restore_pages(r, g, &pages);
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (copies_into(r, v) && !(v->flags & IMG_VMA_WRITE))
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_mprotect, v->start, v->end - v->start,
                                      (uint64_t)protection(v->flags), 0, 0, 0);
                add_hints(r, g, v);
        }
        for (uint32_t i = 0; i < p->guards; i++) {
                const struct img_guard *guard = IMG_RECORD(r->image, IMG_GUARDS, img_guard, p->first_guard + i);
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_madvise, guard->start, guard->end - guard->start,
                              102 /* MADV_GUARD_INSTALL */, 0, 0, 0);
        }
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->flags & IMG_VMA_SEALED)
                        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_MSEAL, v->start, v->end - v->start, 0, 0, 0, 0);
        }
        return 0;
}

static bool is_watched(struct cop_restore *r, const struct img_vma *v)
{
        bool any = false;

        for (uint32_t k = 0; k < v->extents && !any && (v->file == IMG_NONE || v->flags & IMG_VMA_WRITE);) {
                struct img_extent e;
                k = join_extents(r, v, k, &e);
                any = mapped(r, v, &e);
        }
        return any;
}

/* Areas that are now more than one piece, or image-backed: see watch.h.  Those with nothing between them but a library's code and constants,
 * which nobody gives advice on, are one range, since the kernel compiles each. */
static size_t list_watched(struct cop_restore *r, const struct img_proc *p, struct cop_watch_range *ranges)
{
        uint64_t reach = 0;
        size_t n = 0;

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                bool follows = n > 0 && v->start - reach < COP_WATCH_UNIT;
                if (is_watched(r, v)) {
                        if (follows)
                                ranges[n - 1].end = v->end;
                        else
                                ranges[n++] = (struct cop_watch_range){v->start, v->end};
                        reach = v->end;
                } else if (follows && v->file != IMG_NONE && !(v->flags & IMG_VMA_WRITE))
                        reach = v->end;
        }
        return n;
}

/* The engine is awake then when this is the last to park.  It adds, and wakes who waits; the comparison is never true. */
static void add_news(struct cop_region *g)
{
        uint64_t parked = PTR(&shared_in(g)->control.parked);

        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_futex, parked, FUTEX_WAKE_OP, 1, 0, parked,
                      FUTEX_OP((uint32_t)(FUTEX_OP_ADD | FUTEX_OP_OPARG_SHIFT), COP_NEWS_SHIFT, FUTEX_OP_CMP_EQ,
                               UINT32_C(0xfff)));
}

/* Sends the engine the descriptor that is the result of `op`, which ends where it stands in a control message (cop_rights_put). */
static void send_result(struct cop_restore *r, struct cop_region *g, struct cop_op *op)
{
        struct cmsghdr head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        struct iovec iov = {.iov_base = cop_region_put(g, &r->self, sizeof(r->self)), .iov_len = sizeof(r->self)};
        struct msghdr m = {.msg_iov = cop_region_put(g, &iov, sizeof(iov)),
                           .msg_iovlen = 1,
                           .msg_control = &op->arg[4],
                           .msg_controllen = CMSG_SPACE(sizeof(int))};

        _Static_assert(offsetof(struct cop_op, arg[4]) + CMSG_LEN(0) == offsetof(struct cop_op, result),
                       "the header takes the place of the last two arguments");
        memcpy(&op->arg[4], &head, sizeof(head));
        cop_table_add(g, &g->main, COP_OP_CHECK | COP_OP_RETRY, SYS_sendmsg, (uint64_t)r->pass_fd[COP_PASS_TREE],
                      PTR(cop_region_put(g, &m, sizeof(m))), MSG_NOSIGNAL, 0, 0, 0);
        cop_table_add(g, &g->main, COP_OP_CHECK | COP_OP_FIRST, SYS_close, PTR(&op->result), 0, 0, 0, 0, 0);
}

static void add_watch(struct cop_restore *r, struct cop_region *g, struct cop_watch_range *ranges, size_t n)
{
        struct sock_filter program[COP_WATCH_PROGRAM];
        struct sock_fprog prog = {.len = (unsigned short)cop_watch_program(ranges, n, program)};

        prog.filter = cop_region_put(g, program, prog.len * sizeof(program[0]));
        struct cop_op *op =
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                              SECCOMP_FILTER_FLAG_NEW_LISTENER, PTR(cop_region_put(g, &prog, sizeof(prog))), 0, 0, 0);
        send_result(r, g, op);
        __atomic_add_fetch(&r->shared->watched, 1, __ATOMIC_SEQ_CST);
}

static void add_mm(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        struct prctl_mm_map map = {0};

        memcpy(&map, p->mm, sizeof(p->mm));
        map.auxv = cop_region_put(g, cop_image_at(r->image, &p->auxv), p->auxv.length);
        map.auxv_size = p->auxv.length;
        map.exe_fd = p->exe == IMG_NONE ? (uint32_t)-1 : (uint32_t)r->objects[p->exe];
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MM, PR_SET_MM_MAP,
                      PTR(cop_region_put(g, &map, sizeof(map))), sizeof(map), 0, 0);
}

static void add_start(struct cop_restore *r, struct cop_region *g, const struct img_proc *p)
{
        uint64_t end = PTR(g->start) + g->size;

        if (__rseq_size > 0)
                cop_table_add(g, &g->main, 0, SYS_rseq, PTR(__builtin_thread_pointer()) + (uint64_t)__rseq_offset,
                              __rseq_size < 32 ? 32 : __rseq_size, 1 /* RSEQ_FLAG_UNREGISTER */, SIG_RSEQ, 0, 0);
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_munmap, 0, PTR(g->start), 0, 0, 0, 0);
        cop_table_add(g, &g->main, COP_OP_CHECK, SYS_munmap, end, IMG_ADDRESS_END - end, 0, 0, 0, 0);
        if (p->vdso)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_arch_prctl, ARCH_MAP_VDSO_64, p->vdso, 0, 0, 0, 0);
}

/* Whose descriptors a process has. */
static uint32_t files_of(const struct cop_restore *r, uint32_t index)
{
        while (RESTORE_PROC(r, index)->shares_files)
                index = RESTORE_PROC(r, index)->parent;
        return index;
}

/* Our own descriptors go when nobody who shares them has anything to map any more; what others open comes after. */
static void add_close(struct cop_restore *r, struct cop_region *g)
{
        uint32_t owner = files_of(r, r->self), sharing = 0;
        uint64_t word = PTR(&shared_in(g)->place[owner].mapped);

        for (uint32_t i = 0; i < r->image->count[IMG_PROCS]; i++)
                sharing += RESTORE_PROC(r, i)->state != IMG_ZOMBIE && files_of(r, i) == owner;
        uint64_t count_in = FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0);
        bool leads = owner == r->self;
        if (!leads)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_futex, word, FUTEX_WAKE_OP, INT32_MAX, 0, word, count_in);
        else if (sharing > 1)
                cop_table_add(g, &g->main, COP_OP_AWAIT, 0, word, sharing - 1, 0, 0, 0, 0);
        if (leads)
                cop_table_add(g, &g->main, 0, SYS_close_range, (uint64_t)r->base_fd, UINT32_MAX, 0, 0, 0, 0);
        if (leads && sharing > 1)
                cop_table_add(g, &g->main, COP_OP_CHECK, SYS_futex, word, FUTEX_WAKE_OP, INT32_MAX, 0, word, count_in);
        else if (!leads)
                cop_table_add(g, &g->main, COP_OP_AWAIT, 0, word, sharing, 0, 0, 0, 0);
}

__attribute__((noreturn)) static void jump(const struct cop_region *g, size_t shared)
{
        __asm__ volatile("mov %0, %%r12\n\t"
                         "mov %1, %%r13\n\t"
                         "jmp *%2\n\t"
                         :
                         : "r"(g->main.ops), "r"(g->start), "r"(g->start + shared)
                         : "r12", "r13", "memory");
        __builtin_unreachable();
}

/* The watch is a filter, and next to one there is no strict mode; it makes its calls from the vdso.  Undumpable processes cannot be traced later by who has no rights. */
static bool may_be_watched(const struct cop_restore *r, const struct img_proc *p)
{
        bool strict = false;

        for (uint32_t i = 0; i < p->threads; i++)
                strict = strict || RESTORE_THREAD(r, p->first_thread + i)->seccomp_strict;
        return !strict && p->vdso_text && (!r->unwatched || p->dumpable == 1);
}

static int find_code(struct cop_restore *r, const struct img_proc *p, struct cop_error *err)
{
        r->code = calloc(r->image->count[IMG_FILES] + 1, sizeof(*r->code));
        if (!r->code)
                return cop_error_errno(err, ENOMEM, "rebuilding memory");
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                const struct img_file *f = v->file == IMG_NONE ? NULL : RESTORE_FILE(r, v->file);
                if (f && v->flags & IMG_VMA_EXEC && f->kind == IMG_FILE_REGULAR && f->arg[2] > 0)
                        r->code[v->file] = true;
        }
        return 0;
}

int cop_restore_memory(struct cop_restore *r, struct cop_error *err)
{
        const struct img_proc *p = RESTORE_PROC(r, r->self);
        _cleanup_free_ struct cop_watch_range *ranges = malloc((p->vmas + 1) * sizeof(*ranges));
        struct cop_region g = {0};
        size_t watched;

        if (!ranges)
                return cop_error_errno(err, ENOMEM, "rebuilding memory");
        r->unwatched = (!(r->request->flags & COP_THAW_MAP) && is_small(r, p)) || !may_be_watched(r, p);
        int ret = find_code(r, p, err);
        if (ret == 0)
                ret = make_region(r, p, &g, err);

        if (ret < 0)
                return ret;
        add_start(r, &g, p);
        ret = find_segments(r, &g, p, err);
        if (ret == 0)
                ret = add_memory(r, &g, p, err);
        if (ret < 0)
                return ret;
        add_news(&g);
        watched = list_watched(r, p, ranges);
        if (watched > 0)
                add_watch(r, &g, ranges, watched);
        add_mm(r, &g, p);
        add_close(r, &g);
        add_locks(r, &g, p);
        cop_restore_state(r, &g, p);
        if (g.full)
                return cop_error_set(err, ENOSPC, COP_ERR_internal, "the restore table of process %d is too small",
                                     p->pid);
        cop_restore_mark(r, COP_MARK_TABLE);
        jump(&g, (r->shared_size + 4095) & ~4095UL);
}
