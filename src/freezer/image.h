/* The image of a frozen process tree: meta.img, one flat file of typed tables, and pages-<id>.img, page contents.
 *
 * Theory of operation.  meta.img begins with a header and a directory of sections.  A section is an array of fixed-size
 * records or, for IMG_HEAP, bytes.  Records refer to each other by index and to strings and blobs by img_ref into the
 * heap: no pointers, so a reader maps the file and uses it in place.  All numbers are native (little endian, x86-64).
 *
 * Every section has an xxh3 checksum, the header has one over itself and the directory; cop_image_open() checks all of
 * them, every index and every reference, so that later code may trust the tables.  Page contents carry one checksum per
 * extent, which only cop_image_verify() looks at: reading a gigabyte to check it would cost what the lazy thaw saves.
 * The size of every page file is recorded and checked at open.
 *
 * Chains.  An incremental image refers to pages of its ancestors.  Their page files are hard-linked into its own folder,
 * so that a folder is complete by itself and any ancestor's folder may be removed; the file system counts the users.
 * IMG_SOURCES lists them; source 0 is always the image's own page file.  There are few of them (dump_chain.c).
 *
 * Limits: 64 GiB of page data per file, 1 GiB of metadata, 1,048,576 records per section but for extents.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "base/err.h"

#define IMG_MAGIC "COPFRZ\r\n"
#define IMG_VERSION 6
#define IMG_VERSION_OLDEST 4 /* that is read: without IMG_HOT; 5: without IMG_FILE_KEPT */
#define IMG_PAGE 4096U
#define IMG_NONE UINT32_MAX
#define IMG_ADDRESS_END 0x7ffffffff000ULL /* of what user space has */
#define IMG_ID_MAX 33

enum img_section_kind {
        IMG_HEAP = 1,
        IMG_TREE,    /* one img_tree */
        IMG_SOURCES, /* img_source */
        IMG_PROCS,   /* img_proc; parents before children, [0] is the root */
        IMG_THREADS, /* img_thread; leader first, unless it has ended */
        IMG_VMAS,    /* img_vma, ascending */
        IMG_EXTENTS, /* img_extent, ascending within a vma or file */
        IMG_FILES,   /* img_file: open file descriptions and mapped files */
        IMG_FDS,     /* img_fd */
        IMG_WATCHES, /* img_watch: epoll and inotify registrations */
        IMG_SIGNALS, /* img_signal: pending ones, in order */
        IMG_TIMERS,  /* img_timer: POSIX timers */
        IMG_LOCKS,   /* img_lock */
        IMG_PACKETS, /* img_packet: queued data of sockets and pipes */
        IMG_GUARDS,  /* img_guard: guard pages */
        IMG_FILTERS, /* img_filter: seccomp programs, oldest first */
        IMG_HOT,     /* img_hot, ascending by process and address: advice only */
        IMG_SECTION_MAX,
};

struct img_ref {
        uint32_t offset;
        uint32_t length; /* strings: without the NUL, which follows in the heap all the same */
};

struct img_header {
        char magic[8];
        uint32_t version;
        uint32_t section_count;
        uint64_t file_size;
        uint64_t checksum; /* xxh3 of header and directory with this field 0 */
        char id[IMG_ID_MAX];
        char parent_id[IMG_ID_MAX];
        char kernel[130];   /* uname release + " " + version: vdso and restart blocks depend on the build */
        char engine[64];    /* COPPICE_VERSION */
        uint64_t xfeatures; /* XCR0 of the CPU that made the vector state */
        uint64_t cpu_hash;  /* of the cpuid feature words user space could have acted on */
        uint32_t cpu_words[16];
        uint64_t created; /* realtime usec */
};

struct img_section {
        uint32_t kind;
        uint32_t record_size;
        uint64_t count;
        uint64_t offset;
        uint64_t checksum;
};

struct img_tree {
        uint64_t monotonic_ns; /* in the tree's time namespace */
        uint64_t boottime_ns;
        uint64_t realtime_ns;
        struct img_ref hostname;
        struct img_ref domainname;
        uint32_t max_fd; /* highest descriptor number of any process */
        uint32_t reserved;
        uint64_t last_pid;
};

struct img_source {
        char id[IMG_ID_MAX]; /* the file is pages-<id>.img: cop_image_pages_name() */
        uint64_t size;
};

#define IMG_COREDUMP_FILTER 0x33U /* what a process has when nobody says otherwise */

enum img_proc_state { IMG_RUNNING = 1, IMG_STOPPED, IMG_ZOMBIE };

/* What the parent knows of a stop: it was sent SIGCHLD, it has waited for it, or nothing yet. */
enum img_stop_told { IMG_STOP_SENT, IMG_STOP_WAITED, IMG_STOP_NEW };

struct img_creds {
        uint32_t uid[4], gid[4]; /* real, effective, saved, fs; inside the tree's user namespace */
        struct img_ref groups;   /* uint32_t[] */
        uint64_t inheritable, permitted, effective, bounding, ambient;
        uint32_t securebits;
        uint32_t no_new_privs;
};

struct img_proc {
        int32_t pid, pgid, sid;
        uint32_t parent; /* index, IMG_NONE for the root */
        uint32_t state;  /* enum img_proc_state */
        int32_t exit_status;
        int32_t exit_signal;
        int32_t stop_signal;
        uint32_t first_thread, threads;
        uint32_t first_vma, vmas;
        uint32_t first_fd, fds;
        uint32_t first_signal, signals; /* shared pending */
        uint32_t first_timer, timers;
        uint32_t first_lock, locks;
        uint32_t first_guard, guards;
        uint32_t exe; /* file index */
        struct img_ref cwd, root;
        struct img_ref comm;       /* of what has ended: zombies, leaders */
        struct img_ref sigactions; /* 64 kernel sigactions of 32 bytes */
        struct img_ref auxv;
        uint64_t mm[11];    /* the first 11 words of struct prctl_mm_map */
        uint64_t vdso;      /* address of vvar, 0 if unmapped */
        uint64_t vdso_size; /* vvar + vdso */
        uint64_t vdso_text; /* address of the vdso itself, 0 if unmapped */
        uint64_t rlimits[16][2];
        uint64_t itimers[3][4];
        uint32_t umask;
        int32_t oom_score_adj;
        uint32_t dumpable, subreaper, thp_disable, keepcaps;
        uint32_t
                tty; /* file index of the controlling terminal's master, or of itself when external (session leaders) */
        uint32_t tty_pgrp;
        uint32_t mce_kill;     /* PR_MCE_KILL_GET */
        uint32_t stop_told;    /* enum img_stop_told, stopped ones */
        uint32_t lock_future;  /* MCL_FUTURE, MCL_ONFAULT: what mlockall said of memory to come */
        uint32_t leader_ended; /* the first thread has, with exit_status: it is not in the list */
        uint32_t shares_fs;    /* folder, root and umask are its parent's (CLONE_FS) */
        uint32_t shares_files; /* and its descriptors (CLONE_FILES) */
        uint32_t membarrier;   /* what it has registered for: a bit per command */
        uint32_t coredump_filter;
        uint32_t mdwe, memory_merge;  /* PR_GET_MDWE, PR_GET_MEMORY_MERGE */
        uint32_t cwd_file, root_file; /* file indexes when they have been removed, else IMG_NONE */
        uint32_t loginuid;            /* of the audit system; UINT32_MAX: none */
        uint32_t uid, gid;            /* of a zombie, inside the tree's user namespace */
        uint32_t reserved;
        uint64_t syscall_insn; /* without a vdso: address of a system call instruction in its memory */
};

/* What a thread was doing, told from orig_rax and rax; see interrupted.c. */
struct img_thread {
        int32_t tid;
        int32_t pdeath_signal;
        struct user_regs_struct regs;
        struct img_ref xstate;
        uint64_t sigmask;
        uint64_t altstack[3]; /* sp, flags, size */
        uint64_t robust_list, robust_len;
        uint64_t tid_address;
        uint64_t rseq;
        uint32_t rseq_size, rseq_signature;
        uint32_t first_signal, signals;
        struct img_creds creds;
        char comm[16];
        uint64_t timer_slack;
        uint32_t policy, priority; /* policy with SCHED_RESET_ON_FORK; priority of a real-time one, else 0 */
        uint32_t personality;
        uint32_t tsc, cpuid;     /* PR_GET_TSC; 0: the instruction CPUID faults */
        uint32_t speculation[2]; /* PR_GET_SPECULATION_CTRL: store bypass, indirect branches; 0: nothing to be set */
        int32_t nice;
        int32_t io_priority;
        struct img_ref affinity; /* a CPU mask, empty: all */
        uint32_t first_filter, filters;
        uint64_t
                wait_end; /* of the call that it makes again, by the tree's monotonic clock; 0: it has no limit (waits.h) */
        uint32_t seccomp_strict; /* it may read, write and end, nothing else */
        uint32_t reserved;
};

enum img_vma_flags {
        IMG_VMA_READ = 1,
        IMG_VMA_WRITE = 2,
        IMG_VMA_EXEC = 4,
        IMG_VMA_SHARED = 8,
        IMG_VMA_GROWSDOWN = 16,
        IMG_VMA_DONTFORK = 32,
        IMG_VMA_DONTDUMP = 64,
        IMG_VMA_WIPEONFORK = 128,
        IMG_VMA_DROPPABLE = 256,
        IMG_VMA_LOCKED = 512,
        IMG_VMA_HUGEPAGE = 1024,
        IMG_VMA_NOHUGEPAGE = 2048,
        IMG_VMA_MERGEABLE = 4096,
        IMG_VMA_NORESERVE = 8192,
        IMG_VMA_SEQUENTIAL = 16384,
        IMG_VMA_RANDOM = 32768,
        IMG_VMA_MAYWRITE = 65536,
        IMG_VMA_LOCKONFAULT = 131072,
        IMG_VMA_SEALED = 262144, /* mseal */
};

struct img_vma {
        uint64_t start, end;
        uint64_t offset; /* into the file */
        uint32_t flags;
        uint32_t file;                  /* IMG_NONE: anonymous */
        uint32_t first_extent, extents; /* mapped or copied in order */
        uint32_t first_patch, patches;  /* copied over them: pages that changed since the extents were written */
        struct img_ref name;            /* PR_SET_VMA_ANON_NAME */
        uint32_t seams; /* inside it: where the kernel had two areas that are equal in all that it tells */
        uint32_t pad;
};

struct img_extent {
        uint64_t address; /* in a process; in a file: the byte offset */
        uint64_t offset;  /* in the page file */
        uint32_t pages;
        uint32_t source;
        uint64_t checksum; /* xxh3, 0 in an extent that belongs to an ancestor's file */
};

enum img_file_kind {
        IMG_FILE_REGULAR = 1, /* path; arg: size, mode, nlink, IMG_ARG_…; extents hold the content when deleted */
        IMG_FILE_DIRECTORY, /* folders, and symbolic links and sockets opened with O_PATH; arg as above but for the size; data: where a
                               removed link leads */
        IMG_FILE_DEVICE,   /* opened by path; arg[0] rdev */
        IMG_FILE_PIPE,     /* arg[0] capacity; link: the pipe's id; packets hold its data */
        IMG_FILE_FIFO,     /* path too; arg: capacity, mode, nlink, IMG_ARG_… */
        IMG_FILE_EVENTFD,  /* arg: count, semaphore */
        IMG_FILE_EPOLL,    /* watches */
        IMG_FILE_TIMERFD,  /* arg: clock, ticks, settime flags, remaining ns, interval ns, when it fires */
        IMG_FILE_SIGNALFD, /* arg: mask */
        IMG_FILE_INOTIFY,  /* watches; arg[0]: events were not read yet */
        IMG_FILE_MEMFD,    /* extents; arg: size, seals, mode, IMG_ARG_…; link: shared object */
        IMG_FILE_PIDFD,    /* arg: pid inside, 0: of a process that has ended, with which status */
        IMG_FILE_UNIX,     /* see img_file.arg in dump_sock.c */
        IMG_FILE_INET,
        IMG_FILE_NETLINK,
        IMG_FILE_PTMX, /* arg: index, locked, packet mode, slave closed, enum cop_pty_stop, IMG_PTY_…; data: termios + winsize; packets: typed, printed */
        IMG_FILE_PTS,  /* arg: index, master closed, exclusive */
        IMG_FILE_EXTERNAL, /* path: the caller's name; arg[0] rdev */
        IMG_FILE_SHMEM,    /* mapping of shared anonymous memory: extents; link: shared object */
        IMG_FILE_PROC, /* a file of procfs or a namespace file: opened by path, late; arg[0]: of a process that has ended */
        IMG_FILE_SYSV,   /* arg: shm id, key, mode, uid, gid, size */
        IMG_FILE_PACKET, /* sockets.h */
        IMG_FILE_KEPT, /* of a folder in memory, open or not, made before others are opened; as IMG_FILE_REGULAR; data: where a link leads;
                          link: one file of several names */
        IMG_FILE_KIND_MAX,
};

/* Of what a thaw makes anew, because it has no name.  Nanoseconds may be UTIME_OMIT. */
enum img_attribute_arg {
        IMG_ARG_UID = 3,
        IMG_ARG_GID,
        IMG_ARG_ATIME,
        IMG_ARG_ATIME_NS,
        IMG_ARG_MTIME,
        IMG_ARG_MTIME_NS
};

/* Of the file that is a terminal's name, told of its master; mode 0: it is not known. */
enum img_pty_arg { IMG_PTY_UID = 5, IMG_PTY_GID, IMG_PTY_MODE };

#define IMG_FILE_ARGS 12
struct img_file {
        uint32_t kind;
        uint32_t flags; /* O_… as F_GETFL gives them */
        uint64_t position;
        uint64_t dev, ino; /* at freeze, for messages and identity within the image */
        uint32_t link; /* files of equal kind and link share one object (both ends of a pipe, one memfd opened twice) */
        uint32_t owner_uid;
        uint64_t arg[IMG_FILE_ARGS];
        struct img_ref path;
        struct img_ref data;
        struct img_ref peer;   /* sockets: see sockets.h */
        struct img_ref filter; /* sockets: struct sock_filter[] */
        struct img_ref groups; /* netlink: uint32_t[], a bit for each group; others: struct img_membership[] */
        struct img_ref place;  /* unix sockets: the path of its file, when its address does not lead there */
        uint32_t first_extent, extents;
        uint32_t first_watch, watches;
        uint32_t first_packet, packets;
        int32_t owner[2];    /* F_SETOWN_EX: type and id inside (0: none) */
        int32_t signal;      /* F_SETSIG */
        uint32_t owner_euid; /* owner_uid and this: whose right to signal the owner counts */
};

struct img_fd {
        int32_t fd;
        uint32_t file;
        uint32_t cloexec;
        uint32_t reserved;
};

struct img_watch {
        uint32_t file; /* file index of the target; inotify: only when it has no path */
        int32_t fd;    /* epoll: number it was registered under; inotify: wd */
        uint32_t events;
        uint32_t process; /* epoll: index of a process that has both descriptors */
        uint64_t data;
        struct img_ref path; /* inotify */
};

struct img_signal {
        uint8_t info[128]; /* siginfo_t */
};

struct img_timer {
        int32_t id, clock, signal, notify; /* notify as in /proc/pid/timers: 0 signal 1 none 2 thread | 4 thread id */
        int32_t tid, reserved;
        uint64_t value_ptr;
        uint64_t interval_ns, value_ns;
        uint64_t missed_ns; /* when the pending signal came, by the timer's clock in the tree; 0: none is pending */
};

enum img_lock_kind { IMG_LOCK_FLOCK = 1, IMG_LOCK_POSIX, IMG_LOCK_OFD, IMG_LOCK_LEASE };
enum img_lease_break { IMG_BREAK_NONE, IMG_BREAK_TO_READ, IMG_BREAK_AWAY };
struct img_lock {
        uint32_t kind, write;
        int32_t fd;
        uint32_t breaking;   /* leases: what another asks for, enum img_lease_break */
        uint64_t start, end; /* end UINT64_MAX: to the end of file */
};

/* Of streams: a byte that was sent with MSG_OOB, and has been taken already where it is not read in line. */
enum img_packet_flags { IMG_PACKET_URGENT = 1, IMG_PACKET_TAKEN = 2 };
struct img_packet {
        struct img_ref data;
        struct img_ref address;     /* sender, datagrams */
        struct img_ref files;       /* uint32_t[] of file indexes in flight */
        struct img_ref credentials; /* struct img_credentials of the sender, or empty */
        uint32_t flags;             /* enum img_packet_flags */
        uint32_t reserved;
};

struct img_guard {
        uint64_t start, end;
};

struct img_filter {
        struct img_ref program; /* struct sock_filter[] */
};

/* Pages that the process wrote to when it last ran for a while, and so will write to again (dump_hot.c). */
struct img_hot {
        uint64_t address;
        uint32_t pages;
        uint32_t proc; /* index */
};

/* The name of a page file; the id is not checked, and may lack its end.  And whether a name (without folders) is that of one. */
#define IMG_PAGES_NAME_MAX (sizeof("pages-.img") - 1 + IMG_ID_MAX)
void cop_image_pages_name(const char id[IMG_ID_MAX], char ret[IMG_PAGES_NAME_MAX]);
bool cop_image_is_pages_name(const char *name);

/* ---- writing ---- */

struct cop_image_writer;

struct cop_freeze_room {
        int fd; /* owned; of a file without a name */
        uint64_t size;
};

/* Begins an image in dir_fd (borrowed; must stay open): creates pages-<new id>.img, or makes it of room, whose descriptor is taken then.
 * parent and room may be NULL. */
struct cop_image;
int cop_image_create(int dir_fd, const struct cop_image *parent, int parent_dir_fd, struct cop_freeze_room *room,
                     struct cop_image_writer **ret, struct cop_error *err);
/* Appends a record and returns its index (IMG_NONE when out of memory: the writer then fails at commit, so callers
 * need not check each one).  `record` is copied. */
uint32_t cop_image_add(struct cop_image_writer *w, enum img_section_kind kind, const void *record);
/* The record just added or any earlier one, to be completed; NULL when out of range.  Valid until the next add. */
void *cop_image_record(struct cop_image_writer *w, enum img_section_kind kind, uint32_t index);
uint32_t cop_image_count(const struct cop_image_writer *w, enum img_section_kind kind);
struct img_ref cop_image_put(struct cop_image_writer *w, const void *data, size_t n);
struct img_ref cop_image_puts(struct cop_image_writer *w, const char *s); /* NULL as "" */
/* Appends n bytes (whole pages) to the page file; *ret_offset is where they went.  Several threads may do that at once. */
int cop_image_write_pages(struct cop_image_writer *w, const void *data, size_t n, uint64_t *ret_offset,
                          struct cop_error *err);
/* For an image that is committed with `sync`: the disk begins with pages while others are still copied. */
void cop_image_write_early(struct cop_image_writer *w);
/* The same at an offset congruent to `address` modulo `size`, after a hole if need be. */
int cop_image_write_aligned(struct cop_image_writer *w, uint64_t address, uint64_t size, const void *data, size_t n,
                            uint64_t *ret_offset, struct cop_error *err);
int cop_image_pages_fd(const struct cop_image_writer *w);
/* The number of the source with this id, or -1. */
int cop_image_find_source(const struct cop_image_writer *w, const char *id);
/* The source number of an ancestor's page file (links it into the folder), or negative errno. */
int cop_image_add_source(struct cop_image_writer *w, const char *id, uint64_t size, int from_dir_fd,
                         struct cop_error *err);
/* Keeps a source in the list although no extent uses it: the running tree still maps it. */
void cop_image_pin_source(struct cop_image_writer *w, uint32_t source);
bool cop_image_is_pinned(const struct cop_image_writer *w, uint32_t source);
const char *cop_image_writer_id(const struct cop_image_writer *w);
/* Memory and disk for that much more in the heap and so many packets, so that a commit does not fail for want of them. */
int cop_image_make_room(struct cop_image_writer *w, size_t heap, size_t packets, bool sync, struct cop_error *err);
/* Writes meta.img under a temporary name, renames it.  With sync the page file, meta and the folder are on disk after. */
int cop_image_commit(struct cop_image_writer *w, bool sync, uint64_t *ret_bytes, struct cop_error *err);
/* Frees; an uncommitted image leaves no file behind. */
void cop_image_writer_free(struct cop_image_writer *w);

/* For qsort: of struct img_extent by where they lie, source and offset. */
int cop_image_compare_places(const void *a, const void *b);

/* ---- reading ---- */

struct cop_image {
        int dir_fd;      /* borrowed */
        int *source_fds; /* owned; one per source, O_RDONLY */
        const char *map; /* owned mapping of meta.img */
        size_t size;
        const struct img_header *header;
        const void *table[IMG_SECTION_MAX];
        uint32_t count[IMG_SECTION_MAX];
};

/* Opens and checks the structure of an image: image_damaged by name of the section.  check_host compares kernel and CPU:
 * image_mismatch. */
int cop_image_open(int dir_fd, bool check_host, struct cop_image **ret, struct cop_error *err);
void cop_image_free(struct cop_image *image);
/* Also the checksums of all page extents. */
int cop_image_verify(const struct cop_image *image, struct cop_error *err);

/* The records of IMG_HOT of a process of it, and how many (borrowed). */
const struct img_hot *cop_image_hot(const struct cop_image *image, const struct img_proc *p, uint32_t *ret_count);

static inline const void *cop_image_at(const struct cop_image *image, const struct img_ref *ref)
{
        /* clang-tidy takes a record whose index was compared with the count for NULL.
         * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
        return (const char *)image->table[IMG_HEAP] + ref->offset;
}
#define IMG_RECORD(image, kind, type, index) (&((const struct type *)(image)->table[kind])[index])

/* Kernel and CPU as recorded in headers. */
void cop_image_describe_host(struct img_header *header);
/* image_mismatch unless this machine has what kernel, cpu_words and xfeatures of the header say. */
int cop_image_check_host(const struct img_header *header, struct cop_error *err);

/* Pretty-prints to stdout. */
struct cop_buf;
int cop_image_inspect(const struct cop_image *image, bool pages, struct cop_buf *out, struct cop_error *err);
