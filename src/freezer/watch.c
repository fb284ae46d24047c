#include "freezer/watch.h"

#include <elf.h>
#include <fcntl.h>
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

struct cop_watch {
        int epoll_fd;
        int *listeners; /* owned, and what they hold */
        size_t count;
        struct {
                uint64_t dev, ino;
        } * files; /* owned: the page files */
        size_t file_count;
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
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)((ranges[i].end + 65535) >> 16), 3, 0),
                        BPF_STMT(BPF_LD | BPF_MEM, 1),
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(ranges[i].start >> 16), 0, 1),
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

int cop_watch_new(const struct cop_image *image, struct cop_watch **ret, struct cop_error *err)
{
        struct cop_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return cop_error_errno(err, ENOMEM, "watching memory");
        w->file_count = image->count[IMG_SOURCES];
        w->files = calloc(w->file_count, sizeof(*w->files));
        w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (!w->files || w->epoll_fd < 0) {
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
};

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
                if (w->files[i].ino == q.inode && w->files[i].dev == makedev(q.dev_major, q.dev_minor))
                        p->image = true;
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

static int64_t remote(struct patient *p, long nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
        uint64_t arg[6] = {a, b, c, d, e, 0};
        int64_t result;
        int r = cop_remote_syscall(&p->proc, &p->task, nr, arg, &result, NULL);

        return r < 0 ? r : result;
}

static uint64_t protection(const struct piece *p)
{
        return (p->flags & 1 ? PROT_READ : 0) | (p->flags & 2 ? PROT_WRITE : 0) | (p->flags & 4 ? PROT_EXEC : 0);
}

/* Fresh zero memory where image-backed memory is to be thrown away. */
static int make_fresh(const struct cop_watch *w, struct patient *p, int maps_fd, uint64_t start, uint64_t end)
{
        struct piece piece;
        int r;

        for (uint64_t at = start; (r = next_piece(w, maps_fd, at, end, &piece)) > 0; at = piece.end) {
                if (!piece.image)
                        continue;
                int64_t got = remote(p, SYS_mmap, piece.start, piece.end - piece.start, protection(&piece),
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, (uint64_t)-1);
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
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1);
        if ((uint64_t)temp > -4096ULL)
                return (int)temp;
        for (at = start; (r = next_piece(w, maps_fd, at, end, &piece)) > 0; at = piece.end) {
                r = copy_content(p, pagemap_fd, &piece, (uint64_t)temp - start, buf);
                if (r < 0)
                        break;
        }
        if (r == 0 && prot != (PROT_READ | PROT_WRITE))
                r = (int)remote(p, SYS_mprotect, (uint64_t)temp, end - start, prot, 0, 0);
        if (r == 0 && remote(p, SYS_mremap, (uint64_t)temp, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED,
                             start) != (int64_t)start)
                r = -ENOMEM;
        if (r < 0)
                remote(p, SYS_munmap, (uint64_t)temp, end - start, 0, 0, 0);
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

static enum verdict treat(const struct cop_watch *w, int listener, const struct seccomp_notif *n)
{
        uint64_t start = n->data.args[0] & ~4095ULL, end = (n->data.args[0] + n->data.args[1] + 4095) & ~4095ULL;
        bool fresh = n->data.nr == SYS_madvise && n->data.args[2] != MADV_WIPEONFORK &&
                     n->data.args[2] != MADV_GUARD_INSTALL_;
        pid_t tid = (pid_t)n->pid;
        struct piece piece = {0};
        struct patient p;
        bool image = false;
        size_t pieces = 0;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/maps", tid);
        _cleanup_close_ int maps_fd = open(path, O_RDONLY | O_CLOEXEC);
        if (maps_fd < 0 && (errno == EACCES || errno == EPERM))
                return FAIL;
        if (maps_fd < 0 || end <= start)
                return GO;
        for (uint64_t at = start; next_piece(w, maps_fd, at, end, &piece) > 0; at = piece.end, pieces++)
                image = image || piece.image;
        if (!image && !(n->data.nr == SYS_mremap && pieces > 1))
                return GO;
        enum verdict seized = seize_patiently(&p, tid, listener, &n->id);
        if (seized != CHANGED)
                return seized;
        int r = fresh ? make_fresh(w, &p, maps_fd, start, end) : make_copy(w, &p, maps_fd, start, end);
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
