/* The table of system calls that replaces a stub's memory by the frozen one.
 *
 * Theory of operation.  The table, the trampoline, and all that its calls point to lie in one region at an address that
 * neither the stub nor the frozen process uses.  Order: the rseq area of the stub's libc is given up (the kernel writes to
 * it), everything outside the region is unmapped, the vdso comes first (it wants its old place), then the areas with
 * their pages, then what refers to them (mm fields, names, hints), then threads, each of which sets its own state, and
 * credentials last, since the steps before need rights.
 *
 * Anonymous pages are mapped privately from the page file where a run is long, else copied with preadv into real
 * anonymous memory, by two tasks when they are many; stacks are always copied.
 */
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/sched.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/pagemap.h"
#include "freezer/procfs.h"
#include "freezer/restore.h"
#include "freezer/sysv.h"
#include "freezer/timers.h"
#include "freezer/watch.h"

#define TASK_END 0x7ffffffff000ULL
#define ARCH_MAP_VDSO_64 0x2003
#define MAP_DROPPABLE_ 0x08
#define SYS_MSEAL 462 /* since 6.10 */
#define SIG_RSEQ 0x53053053
#define THREAD_OPS 128
#define SHARED_COPIES 256 /* pages */
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif

struct table {
        struct cop_op *ops; /* in the region */
        size_t count, max;
};

struct region {
        char *start;
        size_t size;
        char *data, *data_end; /* what calls point to */
        struct table main;
        struct table helper; /* of a second task that copies pages */
        uint32_t *arrived;   /* in the data: threads but the first that have parked; NULL where nobody waits for them */
        uint64_t segments;   /* where System V segments are attached, to be moved from there */
        uint64_t bounding;   /* capabilities that the stub may still drop from its bounding set */
        bool full;
};

static struct cop_op *add(struct region *g, struct table *t, uint32_t flags, long nr, uint64_t a, uint64_t b,
                          uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
        if (t->count == t->max) {
                g->full = true;
                t->count = 0; /* caught at the end */
        }
        struct cop_op *op = &t->ops[t->count++];
        *op = (struct cop_op){.nr = (uint32_t)nr, .flags = flags, .arg = {a, b, c, d, e, f}};
        return op;
}

static void *put(struct region *g, const void *data, size_t n)
{
        char *at = g->data;

        if (n > (size_t)(g->data_end - g->data)) {
                g->full = true;
                return g->start;
        }
        if (data)
                memcpy(at, data, n);
        g->data += (n + 15) & ~15UL;
        return at;
}
#define PTR(p) ((uint64_t)(uintptr_t)(p))

/* ---- where the region can lie ---- */

static bool overlaps(const struct cop_restore *r, const struct img_proc *p, const struct cop_vmas *own, uint64_t start,
                     uint64_t end)
{
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->start < end && v->end > start)
                        return true;
        }
        for (size_t i = 0; i < own->count; i++)
                if (own->list[i].start < end && own->list[i].end > start)
                        return true;
        /* brk and the vdso have room of their own */
        return (p->mm[4] < end && p->mm[5] + (1ULL << 20) > start) || (p->vdso < end && p->vdso + p->vdso_size > start);
}

static int find_place(const struct cop_restore *r, const struct img_proc *p, size_t size, uint64_t *ret,
                      struct cop_error *err)
{
        struct cop_vmas own = {0};
        int ret_code = cop_procfs_vmas(r->proc_fd, false, &own, err);

        if (ret_code < 0)
                return ret_code;
        ret_code = cop_error_set(err, ENOMEM, COP_ERR_start_failed, "no room for the trampoline");
        for (uint64_t at = 0x10000000000ULL; at < TASK_END - size; at += 0x100000000ULL)
                if (!overlaps(r, p, &own, at, at + size)) {
                        *ret = at;
                        ret_code = 0;
                        break;
                }
        cop_vmas_done(&own);
        return ret_code;
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

/* The highest number of its POSIX timers; -1: there are none, or they need not be counted up to. */
static int32_t count_timers_to(const struct cop_restore *r, const struct img_proc *p)
{
        int32_t highest = -1;

        for (uint32_t i = 0; i < p->timers; i++)
                highest = MAX_OF(highest, IMG_RECORD(r->image, IMG_TIMERS, img_timer, p->first_timer + i)->id);
        return highest >= 0 && !cop_timers_numbered() ? highest : -1;
}

static size_t count_signals(const struct cop_restore *r, const struct img_proc *p)
{
        size_t n = p->signals + p->timers;

        for (uint32_t i = 0; i < p->threads; i++)
                n += RESTORE_THREAD(r, p->first_thread + i)->signals;
        return n;
}

static int make_region(struct cop_restore *r, const struct img_proc *p, struct region *g, struct cop_error *err)
{
        size_t extents = count_extents(r, p), signals = count_signals(r, p);
        int32_t timers_to = count_timers_to(r, p);
        if (timers_to > COP_TIMER_NUMBER_MAX)
                return cop_error_set(err, ENOTSUP, COP_ERR_start_failed,
                                     "process %d cannot have its timer %d again: kernel 6.15 is needed", p->pid,
                                     timers_to);
        size_t ops = 512 + 3UL * p->fds + p->guards + p->locks + 10UL * p->vmas + 2 * extents + signals * 3 +
                     3 * (size_t)(timers_to + 1);
        size_t helper = extents + 16;
        size_t all = (ops + p->threads * (THREAD_OPS + signals) + helper) * sizeof(struct cop_op);
        size_t filters = 0;
        for (uint32_t i = 0; i < p->threads; i++)
                for (uint32_t k = 0; k < RESTORE_THREAD(r, p->first_thread + i)->filters; k++)
                        filters += IMG_RECORD(r->image, IMG_FILTERS, img_filter,
                                              RESTORE_THREAD(r, p->first_thread + i)->first_filter + k)
                                           ->program.length +
                                   64;
        size_t data = filters + extents * sizeof(struct iovec) + p->threads * 8192UL + signals * 256 + p->vmas * 256UL +
                      (p->locks + p->fds) * 64UL + (size_t)(timers_to + 1) * 128 + 65536;
        uint64_t at = 0;
        size_t shared = (r->shared_size + 4095) & ~4095UL;
        size_t size = (shared + 4096 + all + data + 4095) & ~4095UL;
        int ret = find_place(r, p, size, &at, err);

        if (ret < 0)
                return ret;
        char *start = mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED ||
            mmap(start, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->shared_fd, 0) == MAP_FAILED)
                return cop_error_errno(err, errno, "making room for the trampoline");
        memcpy(start + shared, cop_tramp_start, (size_t)(cop_tramp_end - cop_tramp_start));
        *g = (struct region){.start = start, .size = size};
        g->main = (struct table){.ops = (struct cop_op *)(start + shared + 4096), .max = ops};
        g->helper = (struct table){.ops = g->main.ops + ops + p->threads * (THREAD_OPS + signals), .max = helper};
        g->data = start + shared + 4096 + all;
        g->data_end = start + size;
        r->shared->place[r->self].region = PTR(start);
        r->shared->place[r->self].region_size = size;
        r->shared->place[r->self].code = PTR(start + shared);
        return 0;
}

/* ---- areas ---- */

static int protection(uint32_t flags)
{
        return (flags & IMG_VMA_READ ? PROT_READ : 0) | (flags & IMG_VMA_WRITE ? PROT_WRITE : 0) |
               (flags & IMG_VMA_EXEC ? PROT_EXEC : 0);
}

/* Pieces to be copied, gathered until the file position jumps. */
struct copies {
        struct iovec *iov; /* in the region's data */
        size_t count;
        uint32_t source;
        uint64_t offset, bytes;
};

struct pieces {
        struct img_extent *list; /* owned; ascending */
        size_t count;
};

/* Short runs of memory that will be written soon are cheaper to copy now; what cannot be written is mapped in any case. */
static bool mapped(const struct cop_restore *r, const struct img_vma *v, const struct img_extent *e)
{
        if (v->flags & (IMG_VMA_GROWSDOWN | IMG_VMA_LOCKED | IMG_VMA_SHARED | IMG_VMA_SEALED) ||
            r->request->flags & COP_THAW_COPY || (r->unwatched && RESTORE_PROC(r, r->self)->dumpable != 1))
                return false;
        return !(v->flags & IMG_VMA_WRITE) || (v->file == IMG_NONE && e->pages >= COP_RUN_LONG);
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
static void map_segment(struct cop_restore *r, struct region *g, const struct img_proc *p, uint32_t index)
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
                add(g, &g->main, COP_OP_EXPECT, SYS_shmat, f->arg[IMG_SYSV_ID], g->segments, flags, 0, 0, 0);
        op->expect = (int64_t)g->segments;
        for (uint32_t i = index; i < p->vmas; i++) {
                uint64_t length = all[i].end - all[i].start;
                if (!same_attachment(&all[i], v))
                        continue;
                op = add(g, &g->main, COP_OP_EXPECT, SYS_mremap, g->segments + all[i].offset, length, length,
                         MREMAP_MAYMOVE | MREMAP_FIXED, all[i].start, 0);
                op->expect = (int64_t)all[i].start;
                add(g, &g->main, COP_OP_CHECK, SYS_mprotect, all[i].start, length, (uint64_t)protection(all[i].flags),
                    0, 0, 0);
        }
        add(g, &g->main, COP_OP_CHECK, SYS_munmap, g->segments, segment_size(f), 0, 0, 0, 0);
}

/* Room for the largest segment, where nothing is. */
static int find_segments(struct cop_restore *r, struct region *g, const struct img_proc *p, struct cop_error *err)
{
        uint64_t most = 0;

        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->file != IMG_NONE && RESTORE_FILE(r, v->file)->kind == IMG_FILE_SYSV)
                        most = MAX_OF(most, segment_size(RESTORE_FILE(r, v->file)));
        }
        return most == 0 ? 0 : find_place(r, p, most, &g->segments, err);
}

static void add_locks(struct cop_restore *r, struct region *g, const struct img_proc *p)
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
                        add(g, &g->main, COP_OP_CHECK, SYS_fcntl, (uint64_t)l->fd, F_SETLK,
                            PTR(put(g, &fl, sizeof(fl))), 0, 0, 0);
        }
}

static void map_area(struct cop_restore *r, struct region *g, const struct img_proc *p, uint32_t index, int prot)
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
        struct cop_op *op = add(g, &g->main, COP_OP_EXPECT, SYS_mmap, v->start, length, (uint64_t)prot, (uint64_t)flags,
                                (uint64_t)(int64_t)fd, v->file == IMG_NONE ? 0 : v->offset);
        op->expect = (int64_t)v->start;
}

static void map_extents(struct cop_restore *r, struct region *g, const struct img_vma *v, int prot,
                        struct pieces *ret_copied)
{
        for (uint32_t k = 0; k < v->extents;) {
                struct img_extent e;
                k = join_extents(r, v, k, &e);
                if (!mapped(r, v, &e)) {
                        ret_copied->list[ret_copied->count++] = e;
                        continue;
                }
                struct cop_op *op = add(g, &g->main, COP_OP_EXPECT, SYS_mmap, e.address, (uint64_t)e.pages * IMG_PAGE,
                                        (uint64_t)prot, MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE,
                                        (uint64_t)r->sources[e.source], e.offset);
                op->expect = (int64_t)e.address;
        }
}

/* Patches replace what extents hold: they are copied after all of those, mapped or copied. */
static void list_patches(struct cop_restore *r, const struct img_proc *p, struct pieces *ret)
{
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                for (uint32_t k = 0; k < v->patches; k++)
                        ret->list[ret->count++] = *IMG_RECORD(r->image, IMG_EXTENTS, img_extent, v->first_patch + k);
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

static void flush_copies(struct cop_restore *r, struct region *g, struct table *t, struct copies *c)
{
        if (c->count == 0)
                return;
        struct cop_op *op = add(g, t, COP_OP_EXPECT, SYS_preadv, (uint64_t)r->sources[c->source], PTR(c->iov), c->count,
                                c->offset, 0, 0);
        op->expect = (int64_t)c->bytes;
        c->count = 0;
}

static int compare_offset(const void *a, const void *b)
{
        const struct img_extent *x = a, *y = b;

        if (x->source != y->source)
                return x->source < y->source ? -1 : 1;
        return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Those in [from, to), cut at the borders. */
static void add_copies(struct cop_restore *r, struct region *g, struct table *t, const struct pieces *pieces,
                       uint64_t from, uint64_t to)
{
        struct copies c = {0};
        size_t n = 0;
        _cleanup_free_ struct img_extent *list = malloc((pieces->count + 1) * sizeof(*list));

        if (!list) {
                g->full = true;
                return;
        }
        for (size_t i = 0; i < pieces->count; i++) {
                struct img_extent e = pieces->list[i];
                uint64_t start = MAX_OF(e.address, from), end = MIN_OF(e.address + (uint64_t)e.pages * IMG_PAGE, to);
                if (start >= end)
                        continue;
                e.offset += start - e.address;
                e.address = start;
                e.pages = (uint32_t)((end - start) / IMG_PAGE);
                list[n++] = e;
        }
        qsort(list, n, sizeof(*list), compare_offset);
        for (size_t i = 0; i < n; i++) {
                const struct img_extent *e = &list[i];
                uint64_t bytes = (uint64_t)e->pages * IMG_PAGE;
                if (c.count > 0 && (c.source != e->source || c.offset + c.bytes != e->offset || c.count == 1024 ||
                                    c.bytes + bytes > 1U << 30))
                        flush_copies(r, g, t, &c);
                if (c.count == 0) {
                        c.iov = (struct iovec *)g->data;
                        c.source = e->source;
                        c.offset = e->offset;
                        c.bytes = 0;
                }
                struct iovec *iov = (struct iovec *)put(g, NULL, sizeof(*iov));
                *iov = (struct iovec){.iov_base = (void *)(uintptr_t)e->address, .iov_len = bytes};
                c.count++;
                c.bytes += bytes;
        }
        flush_copies(r, g, t, &c);
}

/* The address below which half of the pages lie, of two ascending lists; 0 where a second task would not be worth its making. */
static uint64_t halfway(const struct cop_restore *r, const struct pieces *a, const struct pieces *b)
{
        uint64_t total = 0, sum = 0, at = 0;
        cpu_set_t cpus;

        for (size_t i = 0; i < a->count; i++)
                total += a->list[i].pages;
        for (size_t i = 0; i < b->count; i++)
                total += b->list[i].pages;
        /* It is gone before there are threads: so where there will be some, no limit on tasks is in its way. */
        if (total < SHARED_COPIES || RESTORE_PROC(r, r->self)->threads < 2 ||
            sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) < 2)
                return 0;
        for (size_t i = 0, k = 0; sum < total / 2;) {
                bool first = k == b->count || (i < a->count && a->list[i].address < b->list[k].address);
                const struct img_extent *e = first ? &a->list[i++] : &b->list[k++];
                at = e->address;
                sum += e->pages;
        }
        return at;
}

/* Faults on a page of anonymous memory cost 3 us, and go on side by side: so a second task, which shares memory and descriptors
 * with the first, copies the upper half and ends. */
static void share_copies(struct cop_restore *r, struct region *g, const struct pieces *extents,
                         const struct pieces *patches)
{
        uint64_t border = halfway(r, extents, patches);
        pid_t pid = border ? cop_restore_spare_pid(r) : -1;
        struct clone_args args = {.flags = CLONE_VM | CLONE_FS | CLONE_FILES,
                                  .set_tid = PTR(put(g, &pid, sizeof(pid))),
                                  .set_tid_size = 1};

        if (pid > 0) {
                struct cop_op *op = add(g, &g->main, COP_OP_EXPECT | COP_OP_CHILD, SYS_clone3,
                                        PTR(put(g, &args, sizeof(args))), sizeof(args), 0, 0, 0, 0);
                op->expect = pid;
                op->child = PTR(g->helper.ops);
                add_copies(r, g, &g->helper, extents, border, UINT64_MAX);
                add_copies(r, g, &g->helper, patches, border, UINT64_MAX);
                add(g, &g->helper, 0, SYS_exit, 0, 0, 0, 0, 0, 0);
        } else {
                border = UINT64_MAX;
        }
        add_copies(r, g, &g->main, extents, 0, border);
        add_copies(r, g, &g->main, patches, 0, border);
        if (pid > 0)
                add(g, &g->main, COP_OP_EXPECT | COP_OP_RETRY, SYS_wait4, (uint64_t)pid, 0, __WALL, 0, 0, 0)->expect =
                        pid;
}

static void add_hints(struct cop_restore *r, struct region *g, const struct img_vma *v)
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
                        add(g, &g->main, 0, SYS_madvise, v->start, length, (uint64_t)hints[i].advice, 0, 0, 0);
        if (v->flags & IMG_VMA_LOCKED)
                add(g, &g->main, 0, SYS_mlock2, v->start, length, v->flags & IMG_VMA_LOCKONFAULT ? 1 : 0, 0, 0, 0);
        if (v->name.length)
                add(g, &g->main, 0, SYS_prctl, 0x53564d41 /* PR_SET_VMA */, 0, v->start, length,
                    PTR(put(g, cop_restore_string(r, &v->name), v->name.length + 1)), 0);
}

static int add_memory(struct cop_restore *r, struct region *g, const struct img_proc *p, struct cop_error *err)
{
        size_t most = count_extents(r, p) + 1;
        _cleanup_free_ struct img_extent *copied = malloc(most * sizeof(*copied)),
                                         *patched = malloc(most * sizeof(*patched));
        struct pieces extents = {.list = copied}, patches = {.list = patched};

        if (!copied || !patched)
                return cop_error_errno(err, ENOMEM, "rebuilding memory");
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                int prot = protection(v->flags) | (copies_into(r, v) ? PROT_WRITE : 0);
                map_area(r, g, p, i, prot);
                map_extents(r, g, v, prot, &extents);
        }
        list_patches(r, p, &patches);
        share_copies(r, g, &extents, &patches);
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (copies_into(r, v) && !(v->flags & IMG_VMA_WRITE))
                        add(g, &g->main, COP_OP_CHECK, SYS_mprotect, v->start, v->end - v->start,
                            (uint64_t)protection(v->flags), 0, 0, 0);
                add_hints(r, g, v);
        }
        for (uint32_t i = 0; i < p->guards; i++) {
                const struct img_guard *guard = IMG_RECORD(r->image, IMG_GUARDS, img_guard, p->first_guard + i);
                add(g, &g->main, COP_OP_CHECK, SYS_madvise, guard->start, guard->end - guard->start,
                    102 /* MADV_GUARD_INSTALL */, 0, 0, 0);
        }
        for (uint32_t i = 0; i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                if (v->flags & IMG_VMA_SEALED)
                        add(g, &g->main, COP_OP_CHECK, SYS_MSEAL, v->start, v->end - v->start, 0, 0, 0, 0);
        }
        return 0;
}

/* Areas that are now more than one piece, or image-backed: see watch.h. */
static void add_watch(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        struct cop_watch_range *ranges = malloc((p->vmas + 1) * sizeof(*ranges));
        struct sock_filter program[COP_WATCH_PROGRAM];
        size_t n = 0;

        for (uint32_t i = 0; ranges && i < p->vmas; i++) {
                const struct img_vma *v = IMG_RECORD(r->image, IMG_VMAS, img_vma, p->first_vma + i);
                bool any = false;
                for (uint32_t k = 0; k < v->extents && !any && v->file == IMG_NONE;) {
                        struct img_extent e;
                        k = join_extents(r, v, k, &e);
                        any = mapped(r, v, &e);
                }
                if (any)
                        ranges[n++] = (struct cop_watch_range){v->start, v->end};
        }
        if (n > 0) {
                struct sock_fprog prog = {.len = (unsigned short)cop_watch_program(ranges, n, program)};
                prog.filter = put(g, program, prog.len * sizeof(program[0]));
                struct cop_op *op = add(g, &g->main, COP_OP_CHECK, SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                        SECCOMP_FILTER_FLAG_NEW_LISTENER, PTR(put(g, &prog, sizeof(prog))), 0, 0, 0);
                r->shared->place[r->self].watch_result = PTR(&op->result);
        }
        free(ranges);
}

static void add_mm(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        struct prctl_mm_map map = {0};

        memcpy(&map, p->mm, sizeof(p->mm));
        map.auxv = put(g, cop_image_at(r->image, &p->auxv), p->auxv.length);
        map.auxv_size = p->auxv.length;
        map.exe_fd = p->exe == IMG_NONE ? (uint32_t)-1 : (uint32_t)r->objects[p->exe];
        add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, PTR(put(g, &map, sizeof(map))), sizeof(map),
            0, 0);
}

/* ---- threads ---- */

static void add_creds(struct cop_restore *r, struct region *g, struct table *t, const struct img_creds *c)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct caps[2] = {
                {(uint32_t)c->effective, (uint32_t)c->permitted, (uint32_t)c->inheritable},
                {(uint32_t)(c->effective >> 32), (uint32_t)(c->permitted >> 32), (uint32_t)(c->inheritable >> 32)},
        };

        add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0, 0);
        /* Root of a user namespace made with setgroups denied may not; then there were none. */
        add(g, t, c->groups.length ? COP_OP_CHECK : 0, SYS_setgroups, c->groups.length / 4,
            PTR(put(g, cop_image_at(r->image, &c->groups), c->groups.length)), 0, 0, 0, 0);
        add(g, t, COP_OP_CHECK, SYS_setresgid, c->gid[0], c->gid[1], c->gid[2], 0, 0, 0);
        add(g, t, COP_OP_CHECK, SYS_setresuid, c->uid[0], c->uid[1], c->uid[2], 0, 0, 0);
        if (c->gid[3] != c->gid[1])
                add(g, t, 0, SYS_setfsgid, c->gid[3], 0, 0, 0, 0, 0);
        if (c->uid[3] != c->uid[1])
                add(g, t, 0, SYS_setfsuid, c->uid[3], 0, 0, 0, 0, 0);
        for (unsigned cap = 0; cap < 64; cap++)
                if (g->bounding & ~c->bounding & 1ULL << cap)
                        add(g, t, COP_OP_CHECK, SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0, 0);
        add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_SECUREBITS, c->securebits, 0, 0, 0, 0);
        add(g, t, COP_OP_CHECK, SYS_capset, PTR(put(g, &header, sizeof(header))), PTR(put(g, caps, sizeof(caps))), 0, 0,
            0, 0);
        for (unsigned cap = 0; cap < 64; cap++)
                if (c->ambient & 1ULL << cap)
                        add(g, t, 0, SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0, 0);
}

static void add_signals(struct cop_restore *r, struct region *g, struct table *t, pid_t pid, pid_t tid,
                        struct img_ref range)
{
        for (uint32_t i = 0; i < range.length; i++) {
                const struct img_signal *s = IMG_RECORD(r->image, IMG_SIGNALS, img_signal, range.offset + i);
                uint64_t sig = (uint64_t) * (const int32_t *)(const void *)s->info;
                uint64_t info = PTR(put(g, s->info, sizeof(s->info)));
                if (tid)
                        add(g, t, COP_OP_CHECK, SYS_rt_tgsigqueueinfo, (uint64_t)pid, (uint64_t)tid, sig, info, 0, 0);
                else
                        add(g, t, COP_OP_CHECK, SYS_rt_sigqueueinfo, (uint64_t)pid, sig, info, 0, 0, 0);
        }
}

static void add_scheduling(struct region *g, struct table *t, const struct img_thread *th)
{
        struct {
                uint32_t size, policy;
                uint64_t flags;
                int32_t nice;
                uint32_t priority;
                uint64_t runtime, deadline, period;
        } attr = {.size = 48, .policy = th->policy & ~(uint32_t)SCHED_RESET_ON_FORK, .nice = th->nice};

        attr.flags = th->policy & SCHED_RESET_ON_FORK ? SCHED_FLAG_RESET_ON_FORK : 0;
        /* policy 1 and 2 are real time: priority shows as -1 - rt in stat */
        if (attr.policy == 1 || attr.policy == 2)
                attr.priority = (uint32_t)(-1 - (int32_t)th->priority);
        /* Always: what is inherited is the engine's.  SCHED_IDLE has a nice value, but does not take it with the policy. */
        add(g, t, 0, SYS_setpriority, PRIO_PROCESS, 0, (uint64_t)(int64_t)th->nice, 0, 0, 0);
        add(g, t, 0, SYS_sched_setattr, 0, PTR(put(g, &attr, sizeof(attr))), 0, 0, 0, 0);
}

static void add_modes(struct region *g, struct table *t, const struct img_thread *th)
{
        if (th->personality != (uint32_t)personality(UINT32_MAX)) /* a thread's own: inherited is the engine's */
                add(g, t, 0, SYS_personality, th->personality, 0, 0, 0, 0, 0);
        if (th->tsc != PR_TSC_ENABLE)
                add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_TSC, th->tsc, 0, 0, 0, 0);
        if (!th->cpuid)
                add(g, t, COP_OP_CHECK, SYS_arch_prctl, ARCH_SET_CPUID, 0, 0, 0, 0, 0);
        for (unsigned i = 0; i < 2; i++)
                if (th->speculation[i])
                        add(g, t, 0, SYS_prctl, PR_SET_SPECULATION_CTRL, i, th->speculation[i], 0, 0, 0);
}

/* Are the first n filters of both the same? */
static bool filters_equal(const struct cop_image *image, const struct img_thread *a, const struct img_thread *b,
                          uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                const struct img_filter *x = IMG_RECORD(image, IMG_FILTERS, img_filter, a->first_filter + i),
                                        *y = IMG_RECORD(image, IMG_FILTERS, img_filter, b->first_filter + i);
                if (x->program.length != y->program.length ||
                    memcmp(cop_image_at(image, &x->program), cop_image_at(image, &y->program), x->program.length) != 0)
                        return false;
        }
        return true;
}

bool cop_restore_filters_late(const struct cop_image *image, const struct img_thread *t)
{
        const struct img_proc *root = IMG_RECORD(image, IMG_PROCS, img_proc, 0);
        const struct img_thread *first = IMG_RECORD(image, IMG_THREADS, img_thread, root->first_thread);

        return t->filters > first->filters || !filters_equal(image, t, first, t->filters);
}

/* Setting a filter compiles it: 0.25 ms for ours.  So where all threads have the same ones, the first sets them for all
 * (SECCOMP_FILTER_FLAG_TSYNC), when the others have done all that a filter may forbid. */
static bool filters_together(const struct cop_restore *r, const struct img_proc *p)
{
        const struct img_thread *first = RESTORE_THREAD(r, p->first_thread);

        if (first->filters == 0 || p->threads < 2 || cop_restore_filters_late(r->image, first))
                return false;
        for (uint32_t i = 1; i < p->threads; i++) {
                const struct img_thread *th = RESTORE_THREAD(r, p->first_thread + i);
                if (th->filters != first->filters || !filters_equal(r->image, first, th, first->filters))
                        return false;
        }
        return true;
}

static void add_filters(struct cop_restore *r, struct region *g, struct table *t, const struct img_thread *th)
{
        if (g->arrived && t != &g->main)
                return;
        if (g->arrived)
                add(g, t, COP_OP_AWAIT, 0, PTR(g->arrived), RESTORE_PROC(r, r->self)->threads - 1, 0, 0, 0, 0);
        for (uint32_t i = 0; i < th->filters; i++) {
                const struct img_filter *f = IMG_RECORD(r->image, IMG_FILTERS, img_filter, th->first_filter + i);
                struct sock_fprog prog = {.len = (unsigned short)(f->program.length / sizeof(struct sock_filter))};
                prog.filter = put(g, cop_image_at(r->image, &f->program), f->program.length);
                /* For all threads, a failure is the id of one; expect is 0. */
                add(g, t, COP_OP_CHECK | COP_OP_EXPECT, SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                    g->arrived ? SECCOMP_FILTER_FLAG_TSYNC : 0, PTR(put(g, &prog, sizeof(prog))), 0, 0, 0);
        }
}

static void add_thread(struct cop_restore *r, struct region *g, struct table *t, const struct img_proc *p,
                       const struct img_thread *th)
{
        stack_t ss = {.ss_sp = (void *)th->altstack[0],
                      .ss_flags = (int)th->altstack[1] & ~SS_ONSTACK,
                      .ss_size = th->altstack[2]};

        add(g, t, 0, SYS_prctl, PR_SET_NAME, PTR(put(g, th->comm, sizeof(th->comm))), 0, 0, 0, 0);
        if (th->robust_list)
                add(g, t, COP_OP_CHECK, SYS_set_robust_list, th->robust_list, th->robust_len, 0, 0, 0, 0);
        add(g, t, 0, SYS_set_tid_address, th->tid_address, 0, 0, 0, 0, 0);
        if (th->rseq)
                add(g, t, COP_OP_CHECK, SYS_rseq, th->rseq, th->rseq_size, 0, th->rseq_signature, 0, 0);
        if (th->altstack[2])
                add(g, t, COP_OP_CHECK, SYS_sigaltstack, PTR(put(g, &ss, sizeof(ss))), 0, 0, 0, 0, 0);
        if (th->timer_slack != 50000)
                add(g, t, 0, SYS_prctl, PR_SET_TIMERSLACK, th->timer_slack, 0, 0, 0, 0);
        add_scheduling(g, t, th);
        add_modes(g, t, th);
        if (th->affinity.length)
                add(g, t, 0, SYS_sched_setaffinity, 0, th->affinity.length,
                    PTR(put(g, cop_image_at(r->image, &th->affinity), th->affinity.length)), 0, 0, 0);
        if (th->io_priority)
                add(g, t, 0, SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, (uint64_t)th->io_priority, 0, 0, 0);
        /* Filters need rights or no_new_privs, and may forbid what else is to be done: as late as possible. */
        if (cop_restore_filters_late(r->image, th))
                add(g, t, COP_OP_PARK, 0, 0, 0, 0, 0, 0, 0);
        if (!th->creds.no_new_privs)
                add_filters(r, g, t, th);
        add_creds(r, g, t, &th->creds);
        /* Other ids make the process undumpable, and it is still to be seized; thaw.c sets what it was. */
        add(g, t, 0, SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
        if (th->pdeath_signal)
                add(g, t, 0, SYS_prctl, PR_SET_PDEATHSIG, (uint64_t)th->pdeath_signal, 0, 0, 0, 0);
        add_signals(r, g, t, p->pid, th->tid, (struct img_ref){th->first_signal, th->signals});
        if (th->creds.no_new_privs) {
                add(g, t, COP_OP_CHECK, SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
                add_filters(r, g, t, th);
        }
}

static void add_end(struct cop_restore *r, struct region *g, struct table *t, const struct img_proc *p,
                    const struct img_thread *th)
{
        if (cop_restore_filters_late(r->image, th)) {
                if (cop_restore_action(r->image, p, SIGTRAP) ==
                    (uint64_t)(uintptr_t)SIG_IGN) /* which int3 would reset */
                        add(g, t, 0, SYS_tgkill, (uint64_t)p->pid, (uint64_t)th->tid, SIGTRAP, 0, 0, 0);
                add(g, t, COP_OP_STOP, 0, 0, 0, 0, 0, 0, 0);
        }
        add(g, t, COP_OP_PARK, 0, t == &g->main ? 0 : PTR(g->arrived), 0, 0, 0, 0, 0);
}

static void add_threads(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        size_t signals = count_signals(r, p);
        uint32_t first = p->leader_ended ? 0 : 1;

        for (uint32_t i = first; i < p->threads; i++) {
                const struct img_thread *th = RESTORE_THREAD(r, p->first_thread + i);
                int32_t tid = th->tid;
                struct clone_args args = {
                        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
                        .set_tid = PTR(put(g, &tid, sizeof(tid))),
                        .set_tid_size = 1,
                };
                struct table t = {.max = THREAD_OPS + signals};
                t.ops = g->main.ops + g->main.max + (i - first) * t.max;
                add_thread(r, g, &t, p, th);
                add_end(r, g, &t, p, th);
                struct cop_op *op = add(g, &g->main, COP_OP_EXPECT | COP_OP_CHILD, SYS_clone3,
                                        PTR(put(g, &args, sizeof(args))), sizeof(args), 0, 0, 0, 0);
                op->expect = tid;
                op->child = PTR(t.ops);
        }
}

/* Descriptors that tell a thread by a signal, in the name of whoever asked for it (restore_fd.c, set_owner). */
static void add_owners(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        for (uint32_t i = 0; i < p->fds; i++) {
                const struct img_fd *fd = IMG_RECORD(r->image, IMG_FDS, img_fd, p->first_fd + i);
                const struct img_file *f = RESTORE_FILE(r, fd->file);
                struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = f->owner[1]};
                bool other = f->owner_uid || f->owner_euid, own = false;
                if (!cop_restore_owner_late(r->image, f))
                        continue;
                for (uint32_t k = 0; k < p->threads && !own; k++)
                        own = RESTORE_THREAD(r, p->first_thread + k)->tid == owner.pid;
                if (!own)
                        continue;
                if (other)
                        add(g, &g->main, COP_OP_CHECK, SYS_setresuid, f->owner_uid, f->owner_euid, 0, 0, 0, 0);
                add(g, &g->main, COP_OP_CHECK, SYS_fcntl, (uint64_t)fd->fd, F_SETOWN_EX,
                    PTR(put(g, &owner, sizeof(owner))), 0, 0, 0);
                if (other)
                        add(g, &g->main, COP_OP_CHECK, SYS_setresuid, 0, 0, 0, 0, 0, 0);
        }
}

/* A leader that is to end as soon as everything that is the process's is there.  It keeps nothing of its own, but whose it was. */
static void add_ended_leader(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        struct img_thread th = {.tid = p->pid, .timer_slack = 50000, .nice = 0, .tsc = PR_TSC_ENABLE, .cpuid = 1};

        th.creds = RESTORE_THREAD(r, p->first_thread)->creds;
        snprintf(th.comm, sizeof(th.comm), "%.15s", cop_restore_string(r, &p->comm));
        add_thread(r, g, &g->main, p, &th);
        add(g, &g->main, 0, SYS_exit, (uint64_t)WEXITSTATUS(p->exit_status), 0, 0, 0, 0, 0);
}

static void add_posix_timer(struct region *g, const struct img_timer *t)
{
        uint64_t value = t->missed_ns ? t->missed_ns : t->value_ns;
        int64_t spec[4] = {(int64_t)(t->interval_ns / 1000000000), (int64_t)(t->interval_ns % 1000000000),
                           (int64_t)(value / 1000000000), (int64_t)(value % 1000000000)};
        struct {
                uint64_t value;
                int32_t signal, notify, tid, pad[11];
        } event = {.value = t->value_ptr, .signal = t->signal, .notify = t->notify, .tid = t->tid};

        add(g, &g->main, COP_OP_CHECK, SYS_timer_create, (uint64_t)(int64_t)t->clock,
            PTR(put(g, &event, sizeof(event))), PTR(put(g, &t->id, sizeof(t->id))), 0, 0, 0);
        add(g, &g->main, COP_OP_CHECK, SYS_timer_settime, (uint64_t)t->id, t->missed_ns ? TIMER_ABSTIME : 0,
            PTR(put(g, spec, sizeof(spec))), 0, 0, 0);
}

/* A timer that only counts. */
static void skip_timer(struct region *g, int32_t id)
{
        struct img_timer t = {.id = id, .notify = SIGEV_NONE, .clock = CLOCK_MONOTONIC};

        add_posix_timer(g, &t);
        add(g, &g->main, COP_OP_CHECK, SYS_timer_delete, (uint64_t)id, 0, 0, 0, 0, 0);
}

static int compare_timers(const void *a, const void *b)
{
        const struct img_timer *x = a, *y = b;

        return x->id < y->id ? -1 : x->id > y->id;
}

static void add_posix_timers(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        bool counted = count_timers_to(r, p) >= 0;
        _cleanup_free_ struct img_timer *list = calloc(p->timers + 1, sizeof(*list));
        int32_t next = 0;

        if (p->timers == 0 || !list) {
                g->full = g->full || !list;
                return;
        }
        for (uint32_t i = 0; i < p->timers; i++)
                list[i] = *IMG_RECORD(r->image, IMG_TIMERS, img_timer, p->first_timer + i);
        qsort(list, p->timers, sizeof(*list), compare_timers);
        if (!counted)
                add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0, 0);
        for (uint32_t i = 0; i < p->timers; next = list[i++].id + 1) {
                for (; counted && next < list[i].id; next++)
                        skip_timer(g, next);
                add_posix_timer(g, &list[i]);
        }
        if (!counted)
                add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0, 0);
}

/* The real-time timer stands still from its end until its signal is taken, and shows nothing then but its interval: it is brought there
 * again by an end at once.  The signal is pending already, and a second one is the same. */
static void add_timers(struct region *g, const struct img_proc *p)
{
        for (unsigned i = 0; i < 3; i++) {
                uint64_t t[4]; /* interval and value, s and us each */
                memcpy(t, p->itimers[i], sizeof(t));
                if (i == ITIMER_REAL && !t[2] && !t[3] && (t[0] || t[1]))
                        t[3] = 1;
                if (t[2] || t[3])
                        add(g, &g->main, COP_OP_CHECK, SYS_setitimer, i, PTR(put(g, t, sizeof(t))), 0, 0, 0, 0);
        }
}

/* Before there are threads, for whom the kernel would have to wait. */
static void add_membarrier(struct region *g, const struct img_proc *p)
{
        for (uint32_t command = 1; command && command <= p->membarrier; command <<= 1)
                if (p->membarrier & command)
                        add(g, &g->main, COP_OP_CHECK, SYS_membarrier, command, 0, 0, 0, 0, 0);
}

/* What is said of memory to come, once all is there. */
static void add_memory_modes(struct region *g, const struct img_proc *p)
{
        if (p->lock_future)
                add(g, &g->main, 0, SYS_mlockall, p->lock_future, 0, 0, 0, 0, 0);
        if (p->memory_merge)
                add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MEMORY_MERGE, 1, 0, 0, 0, 0);
        if (p->mdwe)
                add(g, &g->main, COP_OP_CHECK, SYS_prctl, PR_SET_MDWE, p->mdwe, 0, 0, 0, 0);
}

static void add_limits(struct region *g, const struct img_proc *p)
{
        for (unsigned i = 0; i < 16; i++)
                add(g, &g->main, 0, SYS_prlimit64, 0, i, PTR(put(g, p->rlimits[i], sizeof(p->rlimits[i]))), 0, 0, 0);
}

static void add_start(struct cop_restore *r, struct region *g, const struct img_proc *p)
{
        uint64_t end = PTR(g->start) + g->size;

        if (__rseq_size > 0)
                add(g, &g->main, 0, SYS_rseq, PTR(__builtin_thread_pointer()) + (uint64_t)__rseq_offset,
                    __rseq_size < 32 ? 32 : __rseq_size, 1 /* RSEQ_FLAG_UNREGISTER */, SIG_RSEQ, 0, 0);
        add(g, &g->main, COP_OP_CHECK, SYS_munmap, 0, PTR(g->start), 0, 0, 0, 0);
        add(g, &g->main, COP_OP_CHECK, SYS_munmap, end, TASK_END - end, 0, 0, 0, 0);
        if (p->vdso)
                add(g, &g->main, COP_OP_CHECK, SYS_arch_prctl, ARCH_MAP_VDSO_64, p->vdso, 0, 0, 0, 0);
}

/* Whose descriptors a process has. */
static uint32_t files_of(const struct cop_restore *r, uint32_t index)
{
        while (RESTORE_PROC(r, index)->shares_files)
                index = RESTORE_PROC(r, index)->parent;
        return index;
}

/* Our own descriptors go when nobody who shares them has anything to map any more; what others open comes after. */
static void add_close(struct cop_restore *r, struct region *g)
{
        uint32_t owner = files_of(r, r->self), sharing = 0;
        uint64_t word = PTR(g->start) + offsetof(struct cop_restore_shared, place) +
                        owner * sizeof(r->shared->place[0]) + offsetof(struct cop_restore_place, mapped);

        for (uint32_t i = 0; i < r->image->count[IMG_PROCS]; i++)
                sharing += RESTORE_PROC(r, i)->state != IMG_ZOMBIE && files_of(r, i) == owner;
        uint64_t count_in = FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0);
        bool leads = owner == r->self;
        if (!leads)
                add(g, &g->main, COP_OP_CHECK, SYS_futex, word, FUTEX_WAKE_OP, INT32_MAX, 0, word, count_in);
        else if (sharing > 1)
                add(g, &g->main, COP_OP_AWAIT, 0, word, sharing - 1, 0, 0, 0, 0);
        if (leads)
                add(g, &g->main, 0, SYS_close_range, (uint64_t)r->base_fd, UINT32_MAX, 0, 0, 0, 0);
        if (leads && sharing > 1)
                add(g, &g->main, COP_OP_CHECK, SYS_futex, word, FUTEX_WAKE_OP, INT32_MAX, 0, word, count_in);
        else if (!leads)
                add(g, &g->main, COP_OP_AWAIT, 0, word, sharing, 0, 0, 0, 0);
}

__attribute__((noreturn)) static void jump(const struct region *g, size_t shared)
{
        __asm__ volatile("mov %0, %%r12\n\t"
                         "mov %1, %%r13\n\t"
                         "jmp *%2\n\t"
                         :
                         : "r"(g->main.ops), "r"(g->start), "r"(g->start + shared)
                         : "r12", "r13", "memory");
        __builtin_unreachable();
}

int cop_restore_memory(struct cop_restore *r, struct cop_error *err)
{
        const struct img_proc *p = RESTORE_PROC(r, r->self);
        struct region g = {0};
        int ret = make_region(r, p, &g, err);

        if (ret < 0)
                return ret;
        add_start(r, &g, p);
        ret = find_segments(r, &g, p, err);
        if (ret == 0)
                ret = add_memory(r, &g, p, err);
        if (ret < 0)
                return ret;
        add_mm(r, &g, p);
        add_close(r, &g);
        add_locks(r, &g, p);
        add_watch(r, &g, p);
        if (filters_together(r, p))
                g.arrived = memset(put(&g, NULL, sizeof(*g.arrived)), 0, sizeof(*g.arrived));
        for (unsigned cap = 0; cap < 64; cap++)
                g.bounding |= prctl(PR_CAPBSET_READ, cap) == 1 ? 1ULL << cap : 0;
        add_membarrier(&g, p);
        add_threads(r, &g, p);
        add_owners(r, &g, p);
        add_memory_modes(&g, p);
        add_limits(&g, p);
        add_signals(r, &g, &g.main, p->pid, 0, (struct img_ref){p->first_signal, p->signals});
        add_timers(&g, p);
        add_posix_timers(r, &g, p);
        if (!p->leader_ended)
                add_thread(r, &g, &g.main, p, RESTORE_THREAD(r, p->first_thread));
        if (p->mce_kill != PR_MCE_KILL_DEFAULT)
                add(&g, &g.main, 0, SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_SET, p->mce_kill, 0, 0, 0);
        if (p->leader_ended)
                add_ended_leader(r, &g, p);
        else
                add_end(r, &g, &g.main, p, RESTORE_THREAD(r, p->first_thread));
        if (g.full)
                return cop_error_set(err, ENOSPC, COP_ERR_internal, "the restore table of process %d is too small",
                                     p->pid);
        cop_restore_mark(r, COP_MARK_TABLE);
        jump(&g, (r->shared_size + 4095) & ~4095UL);
}
