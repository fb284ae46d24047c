/* What /proc says about a process, parsed.  The texts are the kernel's, but names in them are foreign bytes: every length
 * is bounded, a line that does not parse is -EBADMSG. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "freezer/image.h"

struct cop_procfs_stat {
        char state;
        char comm[64];
        pid_t ppid, pgrp, session; /* in the reader's pid namespace */
        int tty_nr, tpgid;
        int nice, policy, priority; /* priority: of a real-time policy, from 1 to 99; else 0 */
        int exit_signal, exit_code;
        uint64_t start_code, end_code, start_stack, start_data, end_data, start_brk;
        uint64_t arg_start, arg_end, env_start, env_end;
};
/* dir_fd: /proc/PID or /proc/PID/task/TID. */
int cop_procfs_stat(int dir_fd, struct cop_procfs_stat *ret, struct cop_error *err);

struct cop_procfs_status {
        pid_t tracer;
        uint32_t umask;
        uint32_t uid, gid;                       /* the real ones */
        uint32_t no_new_privs, seccomp, filters; /* how many seccomp filters */
        uint64_t inheritable, permitted, effective, bounding, ambient;
        uint64_t ignored;      /* signals, the lowest bit is 1 */
        uint64_t locked_kb;    /* of its memory */
        int ns_depth;          /* how many pid namespaces deep */
        pid_t ns_pgid, ns_sid; /* in the innermost */
        char creds[1024];      /* the lines Uid, Gid, Groups and Cap* as they are: equal texts are equal credentials */
};
int cop_procfs_status(int dir_fd, struct cop_procfs_status *ret, struct cop_error *err);
static inline bool cop_procfs_ignores(const struct cop_procfs_status *status, int sig)
{
        return status->ignored >> (sig - 1) & 1;
}

/* Soft and hard limits by RLIMIT_*, RLIM_INFINITY where there is none.  prlimit(2) would want CAP_SYS_RESOURCE where the process has
 * other ids than the caller. */
int cop_procfs_limits(int dir_fd, uint64_t ret[static RLIM_NLIMITS][2], struct cop_error *err);

struct cop_vma {
        uint64_t start, end, offset;
        uint64_t dev, ino;
        uint32_t flags; /* enum img_vma_flags */
        bool special;   /* vvar, vdso, vsyscall */
        bool pfnmap;    /* pfn, mixed or IO mapping */
        bool uffd;      /* registered with a userfaultfd */
        bool hugetlb;
        bool tracked; /* set by cop_tracker_cover: writes are seen */
        bool vdso, vvar;
        bool heap, stack;
        uint32_t path, path_length; /* into the text buffer of the list */
};
struct cop_vmas {
        struct cop_vma *list; /* owned */
        size_t count;
        char *text;  /* owned; names NUL-terminated in place */
        bool guards; /* some area may have guard pages (or it is not known) */
};
void cop_vmas_done(struct cop_vmas *v);
/* full: reads smaps (flags such as growsdown need it); otherwise maps only, flags from the permissions. */
int cop_procfs_vmas(int dir_fd, bool full, struct cop_vmas *ret, struct cop_error *err);

/* PROCMAP_QUERY of linux/fs.h, kernel >= 6.11: the area at or after `at`; with its name, of PATH_MAX bytes, unless that is NULL.
 * -ENOENT: there is none; -ENOTTY: an older kernel. */
struct cop_procmap_query {
        uint64_t size, query_flags, query_addr;
        uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
        uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
        uint64_t vma_name_addr, build_id_addr;
};
#define COP_PROCMAP_SHARED 0x08 /* in vma_flags, as are 1 read, 2 write, 4 execute */
int cop_procmap_query(int maps_fd, uint64_t at, char *name, struct cop_procmap_query *ret);

/* What a small file says, NUL-terminated, without a copy on the heap; false: nothing, and buf is empty. */
bool cop_procfs_text(int at_fd, const char *path, char *buf, size_t size);
/* How often a thread has been on a CPU; false: it is gone, or the kernel does not tell (CONFIG_SCHED_INFO). */
bool cop_procfs_slices(pid_t tid, uint64_t *ret);

/* Address of the vdso's text, 0: none. */
uint64_t cop_procfs_vdso(int dir_fd);

/* Value of "key:" in a text of lines, or NULL; *ret_length up to the end of line. */
const char *cop_procfs_field(const char *text, const char *key, size_t *ret_length);
/* That value as a number in this base, 0 when there is none. */
uint64_t cop_procfs_field_u64(const char *text, const char *key, int base);
/* Numbers in a directory (task, fd), ascending, malloc'd. */
int cop_procfs_numbers(int dir_fd, const char *name, int **ret, size_t *ret_count, struct cop_error *err);
