#include "freezer/watch.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/runs.h"
#include "base/fs.h"
#include "freezer/freezer.h"
#include "freezer/pagemap.h"
#include "freezer/procfs.h"
#include "freezer/tracee.h"

#define MAGIC COP_WATCH_PROBE

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define MADV_GUARD_INSTALL_ 102

/* Pages of a file's area that a thaw may have mapped from a page file. */
struct of_file {
        size_t page_file;     /* index into cop_watch.files */
        uint64_t offset, end; /* in the page file */
        uint64_t in_file;     /* where the page at `offset` belongs */
        const char *path;     /* owned by cop_watch.paths; NULL: it has none */
};

struct cop_watch {
        int epoll_fd;
        int *listeners; /* owned, and what they hold */
        size_t count;
        struct {
                uint64_t dev, ino;
        } * files; /* owned: the page files */
        size_t file_count;
        struct of_file *of_files; /* owned */
        size_t of_file_count;
        char **paths; /* owned, and what they hold: of each file of the image, or NULL */
        size_t path_count;
};

/* ---- the filter ---- */

static size_t join_ranges(struct cop_watch_range *r, size_t n)
{
        while (n > COP_WATCH_RANGES) {
                size_t best = 1;
                for (size_t i = 1; i < n; i++)
                        if (r[i].start - r[i - 1].end < r[best].start - r[best - 1].end)
                                best = i;
                r[best - 1].end = r[best].end;
                memmove(&r[best], &r[best + 1], (n - best - 1) * sizeof(*r));
                n--;
        }
        return n;
}

size_t cop_watch_program(struct cop_watch_range *ranges, size_t n, struct sock_filter program[static COP_WATCH_PROGRAM])
{
        static const struct sock_filter head[] = {
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAGIC, 0, 0),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 11, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 7, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_FREE, 6, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 5, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED_LOCKED, 4, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_GUARD_INSTALL_, 3, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COP_WATCH_PROBE, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | COP_WATCH_ANSWER),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                /* M[0] first unit, M[1] one past the last, rounded up */
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 4),
                BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 16),
                BPF_STMT(BPF_MISC | BPF_TAX, 0),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
                BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
                BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
                BPF_STMT(BPF_ST, 0),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
                BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 16),
                BPF_STMT(BPF_MISC | BPF_TAX, 0),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
                BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
                BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
                BPF_STMT(BPF_LDX | BPF_MEM, 0),
                BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
                BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
                BPF_STMT(BPF_ST, 1),
        };
        size_t at = ELEMENTSOF(head);

        memcpy(program, head, sizeof(head));
        n = join_ranges(ranges, n);
        for (size_t i = 0; i < n; i++) {
                const struct sock_filter test[] = {
                        BPF_STMT(BPF_LD | BPF_MEM, 0),
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K,
                                 (uint32_t)((ranges[i].end + COP_WATCH_UNIT - 1) / COP_WATCH_UNIT), 3, 0),
                        BPF_STMT(BPF_LD | BPF_MEM, 1),
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(ranges[i].start / COP_WATCH_UNIT), 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
                };
                memcpy(program + at, test, sizeof(test));
                at += ELEMENTSOF(test);
        }
        program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        return at;
}

bool cop_watch_is_ours(const struct sock_filter *program, size_t n)
{
        return n > 0 && program[0].code == (BPF_JMP | BPF_JEQ | BPF_K) && program[0].k == MAGIC;
}

/* ---- life ---- */

static int note_files(struct cop_watch *w, const struct cop_image *im)
{
        w->path_count = im->count[IMG_FILES];
        w->paths = calloc(w->path_count + 1, sizeof(*w->paths));
        w->of_files = calloc(im->count[IMG_EXTENTS] + 1UL, sizeof(*w->of_files));
        if (!w->paths || !w->of_files)
                return -ENOMEM;
        for (uint32_t i = 0; i < im->count[IMG_VMAS]; i++) {
                const struct img_vma *v = IMG_RECORD(im, IMG_VMAS, img_vma, i);
                if (v->file == IMG_NONE || v->flags & IMG_VMA_SHARED)
                        continue;
                const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, v->file);
                char **path = &w->paths[v->file];
                if (!*path && v->extents > 0 && f->kind == IMG_FILE_REGULAR && f->arg[2] > 0 &&
                    !(*path = strdup(cop_image_at(im, &f->path))))
                        return -ENOMEM;
                for (uint32_t k = 0; k < v->extents; k++) {
                        const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent, v->first_extent + k);
                        w->of_files[w->of_file_count++] =
                                (struct of_file){.page_file = e->source,
                                                 .offset = e->offset,
                                                 .end = e->offset + (uint64_t)e->pages * IMG_PAGE,
                                                 .in_file = v->offset + (e->address - v->start),
                                                 .path = *path};
                }
        }
        return 0;
}

int cop_watch_new(const struct cop_image *image, struct cop_watch **ret, struct cop_error *err)
{
        struct cop_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return cop_error_errno(err, ENOMEM, "watching memory");
        w->file_count = image->count[IMG_SOURCES];
        w->files = calloc(w->file_count, sizeof(*w->files));
        w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (!w->files || w->epoll_fd < 0 || note_files(w, image) < 0) {
                cop_watch_free(w);
                return cop_error_errno(err, ENOMEM, "watching memory");
        }
        for (size_t i = 0; i < w->file_count; i++) {
                struct stat st;
                if (fstat(image->source_fds[i], &st) == 0) {
                        w->files[i].dev = st.st_dev;
                        w->files[i].ino = st.st_ino;
                }
        }
        *ret = w;
        return 0;
}

int cop_watch_add(struct cop_watch *w, int listener_fd, struct cop_error *err)
{
        int *bigger = reallocarray(w->listeners, w->count + 1, sizeof(*bigger));
        struct epoll_event event = {.events = EPOLLIN, .data.fd = listener_fd};

        if (bigger)
                w->listeners = bigger;
        if (!bigger || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, listener_fd, &event) < 0) {
                close(listener_fd);
                return cop_error_errno(err, bigger ? errno : ENOMEM, "watching memory");
        }
        w->listeners[w->count++] = listener_fd;
        return 0;
}

void cop_watch_free(struct cop_watch *w)
{
        if (!w)
                return;
        for (size_t i = 0; i < w->count; i++)
                close(w->listeners[i]);
        cop_close(w->epoll_fd);
        for (size_t i = 0; w->paths && i < w->path_count; i++)
                free(w->paths[i]);
        free(w->paths);
        free(w->of_files);
        free(w->listeners);
        free(w->files);
        free(w);
}

int cop_watch_fd(const struct cop_watch *w)
{
        return w->epoll_fd;
}

/* ---- looking at a range ---- */

struct piece {
        uint64_t start, end, flags;
        bool image;
        const struct of_file *of_file; /* borrowed; NULL: it is none of a file's */
        uint64_t in_file;              /* where it begins in that */
};

static void look_up(const struct cop_watch *w, size_t page_file, uint64_t offset, struct piece *p)
{
        for (size_t i = 0; i < w->of_file_count && !p->of_file; i++) {
                const struct of_file *f = &w->of_files[i];
                if (f->page_file == page_file && f->offset <= offset && offset < f->end) {
                        p->of_file = f;
                        p->in_file = f->in_file + (offset - f->offset);
                }
        }
}

static int next_piece(const struct cop_watch *w, int maps_fd, uint64_t address, uint64_t end, struct piece *p)
{
        struct cop_procmap_query q;

        if (address >= end)
                return 0;
        int r = cop_procmap_query(maps_fd, address, NULL, &q);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        if (q.vma_start >= end)
                return 0;
        *p = (struct piece){.start = MAX_OF(q.vma_start, address), .end = MIN_OF(q.vma_end, end), .flags = q.vma_flags};
        for (size_t i = 0; i < w->file_count && !(q.vma_flags & COP_PROCMAP_SHARED); i++)
                if (w->files[i].ino == q.inode && w->files[i].dev == makedev(q.dev_major, q.dev_minor)) {
                        p->image = true;
                        look_up(w, i, q.vma_offset + (p->start - q.vma_start), p);
                }
        return 1;
}

/* ---- changing it ---- */

struct patient {
        struct cop_proc proc;
        struct cop_task task;
};

/* What running calls in it needs to know. */
static int look_at_process(struct cop_proc *p)
{
        struct cop_procfs_status status;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d", p->pid);
        _cleanup_close_ int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        uint64_t vdso = dir_fd < 0 ? 0 : cop_procfs_vdso(dir_fd);
        if (!vdso || cop_procfs_status(dir_fd, &status, NULL) < 0)
                return -ENOEXEC;
        p->syscall_insn = vdso + cop_vdso_syscall();
        /* Without one no call of its could be answered once it is seized. */
        p->mem_fd = openat(dir_fd, "mem", O_RDONLY | O_CLOEXEC);
        bool there = cop_find_syscall(p, p->syscall_insn, 2) != 0;
        p->mem_fd = cop_close(p->mem_fd);
        if (!there)
                return -ENOEXEC;
        p->no_traps = cop_procfs_ignores(&status, SIGTRAP);
        return 0;
}

static int seize_thread(struct patient *p, pid_t tid)
{
        int status, r;

        *p = (struct patient){.proc = {.pid = tid, .mem_fd = -EBADF}, .task = {.tid = tid}};
        r = look_at_process(&p->proc);
        if (r < 0)
                return r;
        if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0)
                return -errno;
        bool there = ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0 && cop_wait_task(tid, &status) == 0 && WIFSTOPPED(status);
        while (there && status >> 16 != PTRACE_EVENT_STOP) { /* a signal first */
                ptrace(PTRACE_CONT, tid, 0, WSTOPSIG(status));
                there = cop_wait_task(tid, &status) == 0 && WIFSTOPPED(status);
        }
        if (!there || ptrace(PTRACE_GETREGS, tid, 0, &p->task.regs) < 0 ||
            ptrace((enum __ptrace_request)PTRACE_GETSIGMASK, tid, 8, &p->task.sigmask) < 0) {
                cop_let_go(tid);
                return -ESRCH;
        }
        p->proc.no_traps = p->proc.no_traps || cop_trap_pending(tid);
        return 0;
}

static void release_thread(struct patient *p)
{
        ptrace(PTRACE_SETREGS, p->task.tid, 0, &p->task.regs);
        ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, p->task.tid, 8, &p->task.sigmask);
        cop_give_stop_back(&p->task);
        cop_let_go(p->task.tid);
}

static int64_t remote(struct patient *p, long nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                      uint64_t f)
{
        uint64_t arg[6] = {a, b, c, d, e, f};
        int64_t result;
        int r = cop_remote_syscall(&p->proc, &p->task, nr, arg, &result, NULL);

        return r < 0 ? r : result;
}

static uint64_t protection(const struct piece *p)
{
        return (p->flags & 1 ? PROT_READ : 0) | (p->flags & 2 ? PROT_WRITE : 0) | (p->flags & 4 ? PROT_EXEC : 0);
}

/* Fresh zero memory where image-backed memory is to be thrown away; where that is a file's, the file (a descriptor of the patient's). */
static int make_fresh(const struct cop_watch *w, struct patient *p, int maps_fd, uint64_t start, uint64_t end, int file)
{
        struct piece piece;
        int r;

        for (uint64_t at = start; (r = next_piece(w, maps_fd, at, end, &piece)) > 0; at = piece.end) {
                if (!piece.image || (piece.of_file && file < 0))
                        continue;
                uint64_t flags = piece.of_file ? MAP_PRIVATE | MAP_FIXED
                                               : MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
                int64_t got = remote(p, SYS_mmap, piece.start, piece.end - piece.start, protection(&piece), flags,
                                     piece.of_file ? (uint64_t)file : (uint64_t)-1, piece.in_file);
                if (got != (int64_t)piece.start)
                        return -ENOMEM;
        }
        return r;
}

static int copy_piece(const struct patient *p, char *buf, uint64_t from, uint64_t to, uint64_t n)
{
        while (n > 0) {
                size_t step = MIN_OF(n, 1UL << 20);
                struct iovec local = {buf, step}, source = {(void *)from, step}, target = {(void *)to, step};
                if (process_vm_readv(p->task.tid, &local, 1, &source, 1, 0) != (ssize_t)step ||
                    process_vm_writev(p->task.tid, &local, 1, &target, 1, 0) != (ssize_t)step)
                        return -EFAULT;
                from += step;
                to += step;
                n -= step;
        }
        return 0;
}

/* What has to be copied of a piece: of image-backed memory all, of anonymous memory the pages that are there. */
static int copy_content(const struct patient *p, int pagemap_fd, const struct piece *piece, uint64_t shift, char *buf)
{
        struct cop_page_region regions[256];
        struct cop_scan_arg arg = {
                .size = sizeof(arg),
                .start = piece->start,
                .end = piece->end,
                .vec = (uintptr_t)regions,
                .vec_len = ELEMENTSOF(regions),
                .category_inverted = COP_PAGE_IS_PFNZERO,
                .category_mask = COP_PAGE_IS_PFNZERO,
                .category_anyof_mask = COP_PAGE_IS_PRESENT | COP_PAGE_IS_SWAPPED,
                .return_mask = COP_PAGE_IS_PRESENT,
        };

        if (piece->image || pagemap_fd < 0)
                return copy_piece(p, buf, piece->start, piece->start + shift, piece->end - piece->start);
        while (arg.start < piece->end) {
                long n = ioctl(pagemap_fd, COP_PAGEMAP_SCAN, &arg);
                if (n < 0)
                        return -errno;
                for (long i = 0; i < n; i++) {
                        int r = copy_piece(p, buf, regions[i].start, regions[i].start + shift,
                                           regions[i].end - regions[i].start);
                        if (r < 0)
                                return r;
                }
                arg.start = cop_scan_next(&arg, regions, n);
        }
        return 0;
}

/* The whole range becomes one anonymous area with the same content: built elsewhere, then moved over the old one. */
static int make_copy(const struct cop_watch *w, struct patient *p, int maps_fd, uint64_t start, uint64_t end)
{
        struct piece piece = {0};
        uint64_t prot = 0, at;
        char path[64];
        int r;

        for (at = start; (r = next_piece(w, maps_fd, at, end, &piece)) > 0; at = piece.end) {
                if (piece.start != at || piece.flags & COP_PROCMAP_SHARED || (at > start && protection(&piece) != prot))
                        return -EDOM; /* never was one area: the call may fail as it would have */
                prot = protection(&piece);
        }
        if (r < 0 || at < end)
                return r < 0 ? r : -EDOM;
        snprintf(path, sizeof(path), "/proc/%d/pagemap", p->task.tid);
        /* An owner may not open that of another of the tree's users: then everything is copied. */
        _cleanup_close_ int pagemap_fd = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *buf = malloc(1UL << 20);
        if (!buf)
                return -ENOMEM;
        int64_t temp = remote(p, SYS_mmap, 0, end - start, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1, 0);
        if ((uint64_t)temp > -4096ULL)
                return (int)temp;
        for (at = start; (r = next_piece(w, maps_fd, at, end, &piece)) > 0; at = piece.end) {
                r = copy_content(p, pagemap_fd, &piece, (uint64_t)temp - start, buf);
                if (r < 0)
                        break;
        }
        if (r == 0 && prot != (PROT_READ | PROT_WRITE))
                r = (int)remote(p, SYS_mprotect, (uint64_t)temp, end - start, prot, 0, 0, 0);
        if (r == 0 && remote(p, SYS_mremap, (uint64_t)temp, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED,
                             start, 0) != (int64_t)start)
                r = -ENOMEM;
        if (r < 0)
                remote(p, SYS_munmap, (uint64_t)temp, end - start, 0, 0, 0, 0);
        return r;
}

/* ---- one call ---- */

enum verdict { GO, CHANGED, GONE, FAIL };

/* A freeze by another engine may hold the thread: it takes the call back, and the thread makes it again.  Held by nobody, it is one that
 * this engine may not trace (see doc/freezer.md, "As an owner"). */
static enum verdict seize_patiently(struct patient *p, pid_t tid, int listener, const __u64 *id)
{
        char path[64];
        int r = -EPERM;

        snprintf(path, sizeof(path), "/proc/%d", tid);
        _cleanup_close_ int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0, free = 0; i < 2000 && free < 5; i++) {
                struct cop_procfs_status status;
                r = seize_thread(p, tid);
                if (r != -EPERM)
                        break;
                if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, id) < 0)
                        return GONE;
                free += dir_fd < 0 || cop_procfs_status(dir_fd, &status, NULL) < 0 || status.tracer == 0;
                usleep(1000);
        }
        return r == 0 ? CHANGED : r == -ESRCH ? GONE : FAIL;
}

/* The file of an area, opened as the area has it, so that nothing the tree does to names leads elsewhere; who may not open that goes by
 * the name, within the tree's root and past no links, and takes the same file only. */
static int open_mapped(pid_t tid, const struct cop_procmap_query *q, const char *path)
{
        char link[96];
        struct stat st;

        snprintf(link, sizeof(link), "/proc/%d/map_files/%llx-%llx", tid, (unsigned long long)q->vma_start,
                 (unsigned long long)q->vma_end);
        _cleanup_close_ int fd = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        bool by_name = fd < 0 && (errno == EPERM || errno == EACCES);
        if (by_name) {
                snprintf(link, sizeof(link), "/proc/%d/root", tid);
                _cleanup_close_ int root_fd = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
                fd = cop_open_beneath(root_fd, path + 1, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0, true, NULL);
        }
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
            (by_name && (st.st_ino != q->inode || st.st_dev != makedev(q->dev_major, q->dev_minor))))
                return -ENOENT;
        return TAKE_FD(fd);
}

/* The file of this name, which an area has that is left of it, in the caller's table of descriptors; -errno.  One that was removed or
 * replaced is called otherwise. */
static int give_file(int listener, const struct seccomp_notif *n, int maps_fd, const char *path)
{
        struct cop_procmap_query q;
        char name[PATH_MAX];
        bool found = false;

        for (uint64_t at = 0; !found && cop_procmap_query(maps_fd, at, name, &q) == 0; at = q.vma_end)
                found = q.vma_name_size > 0 && strcmp(name, path) == 0;
        _cleanup_close_ int fd = found ? open_mapped((pid_t)n->pid, &q, path) : -ENOENT;
        struct seccomp_notif_addfd add = {.id = n->id, .srcfd = (uint32_t)fd, .newfd_flags = O_CLOEXEC};
        int theirs = fd < 0 ? -1 : ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
        return theirs < 0 ? -ENOENT : theirs;
}

/* What the range of a call holds. */
struct range {
        size_t pieces;
        bool image;    /* some of it has to be made plain before the call */
        bool of_files; /* pages of files are among it */
        bool several;  /* of more than one, or of one that has no name */
        const char *path;
};

static void look_at_range(const struct cop_watch *w, int maps_fd, uint64_t start, uint64_t end, uint64_t advice,
                          struct range *ret)
{
        bool in_vain = advice == MADV_FREE || advice == MADV_WIPEONFORK; /* for a mapping of any file */
        struct piece piece;

        *ret = (struct range){0};
        for (uint64_t at = start; next_piece(w, maps_fd, at, end, &piece) > 0; at = piece.end, ret->pieces++) {
                ret->image = ret->image || (piece.image && !(piece.of_file && in_vain));
                if (!piece.of_file)
                        continue;
                const char *path = piece.of_file->path;
                ret->several = ret->several || !path || (ret->path && strcmp(ret->path, path) != 0);
                ret->of_files = true;
                ret->path = path;
        }
}

static enum verdict treat(const struct cop_watch *w, int listener, const struct seccomp_notif *n)
{
        uint64_t start = n->data.args[0] & ~4095ULL, end = (n->data.args[0] + n->data.args[1] + 4095) & ~4095ULL;
        uint64_t advice = n->data.nr == SYS_madvise ? n->data.args[2] : UINT64_MAX;
        bool fresh = advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED || advice == MADV_FREE;
        pid_t tid = (pid_t)n->pid;
        struct range range;
        struct patient p;
        int file = -EBADF;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/maps", tid);
        _cleanup_close_ int maps_fd = open(path, O_RDONLY | O_CLOEXEC);
        if (maps_fd < 0 && (errno == EACCES || errno == EPERM))
                return FAIL;
        if (maps_fd < 0 || end <= start)
                return GO;
        look_at_range(w, maps_fd, start, end, advice, &range);
        if (!range.image && !(n->data.nr == SYS_mremap && range.pieces > 1))
                return GO;
        if (range.of_files && (!fresh || range.several))
                return FAIL;
        if (range.of_files && advice != MADV_FREE && (file = give_file(listener, n, maps_fd, range.path)) < 0)
                return FAIL;
        enum verdict seized = seize_patiently(&p, tid, listener, &n->id);
        if (seized != CHANGED)
                return seized;
        int r = fresh ? make_fresh(w, &p, maps_fd, start, end, file) : make_copy(w, &p, maps_fd, start, end);
        if (file >= 0)
                remote(&p, SYS_close, (uint64_t)file, 0, 0, 0, 0, 0);
        release_thread(&p);
        return r == 0 ? CHANGED : r == -EDOM ? GO : FAIL;
}

int cop_watch_dispatch(struct cop_watch *w, struct cop_error *err)
{
        struct epoll_event events[16];
        int n = epoll_wait(w->epoll_fd, events, ELEMENTSOF(events), 0);

        for (int i = 0; i < n; i++) {
                struct seccomp_notif notif = {0};
                struct seccomp_notif_resp resp = {0};
                int fd = events[i].data.fd;
                if (events[i].events & EPOLLHUP && !(events[i].events & EPOLLIN)) {
                        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* the last process with this filter ended */
                        continue;
                }
                if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notif) < 0)
                        continue; /* taken back meanwhile */
                enum verdict verdict = treat(w, fd, &notif);
                if (verdict == CHANGED || verdict == GONE)
                        continue; /* the call starts again and asks again */
                resp.id = notif.id;
                if (verdict == FAIL) /* rather than bring to light what was there before */
                        resp.error = -ENOMEM;
                else
                        resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
                (void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &resp);
        }
        return n < 0 && errno != EINTR ? cop_error_errno(err, errno, "watching memory") : 0;
}
