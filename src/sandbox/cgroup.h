/* The cgroup of a sandbox on cgroup v2 or on v1 hierarchies, whichever holds the controllers on this host.
 *
 * All sandboxes live below one folder per hierarchy: $COPPICE_CGROUP when set (a delegated cgroup, for example
 * /system.slice/coppice.service), else /coppice.  Values are bytes, microseconds and thousandths of a CPU.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum cop_controller {
        COP_CG_MEMORY,
        COP_CG_CPU,
        COP_CG_CPUACCT,
        COP_CG_PIDS,
        COP_CG_FREEZER,
        COP_CG_UNIFIED, /* cgroup v2, with or without controllers: cgroup.kill, cgroup.freeze, clone into */
        COP_CG_MAX,
};

struct cop_cgroup_host {
        bool v2;                /* memory, cpu and pids are v2 controllers */
        char *base[COP_CG_MAX]; /* owned; folder of all sandboxes; NULL = hierarchy not there; several may be equal */
};

struct cop_cgroup {
        bool v2;
        char name[64];
        int base_fd[COP_CG_MAX]; /* owned; -EBADF = not there */
        int fd[COP_CG_MAX];      /* owned; the sandbox's own folder */
};

struct cop_limits {
        uint64_t memory_max; /* bytes; 0 = no limit, COP_LIMIT_KEEP = leave as it is (all three) */
        uint64_t cpu_milli;
        uint64_t pids_max;
};
#define COP_LIMIT_KEEP UINT64_MAX

struct cop_cgroup_stats {
        uint64_t memory;      /* without page cache that can go at once */
        uint64_t memory_peak; /* with page cache; 0 where the kernel does not tell (v2 before 5.19) */
        uint64_t memory_max;  /* 0 = no limit */
        uint64_t oom_kills;
        uint64_t cpu_usec;
        uint64_t pids;
};

#define COP_CGROUP_NULL                                                                   \
        ((struct cop_cgroup){.base_fd = {-EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF}, \
                             .fd = {-EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF}})

/* Moves between cgroups no longer wait 7-11 ms, on the whole host, as long as the descriptor returned (to be closed by the
 * caller) is open: a mount of a hierarchy without controllers, named "coppice", with favordynmods.  Negative errno: before Linux
 * 6.0 (EINVAL), without CAP_SYS_ADMIN, or not wanted: COPPICE_SLOW_CGROUPS is set (ENOTSUP). */
int cop_cgroup_favor_moves(void);
/* Finds the hierarchies.  unsupported when memory, cpu or pids is nowhere. */
int cop_cgroup_detect(struct cop_cgroup_host *ret, struct cop_error *err);
void cop_cgroup_host_done(struct cop_cgroup_host *host);

/* Makes the folders; a stale cgroup of this name (its keeper was killed) is emptied and replaced.  On failure nothing is
 * left behind. */
int cop_cgroup_create(const struct cop_cgroup_host *host, const char *name, struct cop_cgroup *ret,
                      struct cop_error *err);
/* Closes the descriptors; the cgroup stays. */
void cop_cgroup_done(struct cop_cgroup *cg);

int cop_cgroup_limits(struct cop_cgroup *cg, const struct cop_limits *limits, struct cop_error *err);
/* Moves a process in; skip_unified when it was born there. */
int cop_cgroup_add(struct cop_cgroup *cg, pid_t pid, bool skip_unified, struct cop_error *err);
/* The calling process enters the sandbox's groups for a moment, so that its next children are born there, and leaves them
 * again.  (CLONE_INTO_CGROUP is for those who may write to the group: not for a process that has entered the sandbox's user
 * namespace, as the first one of a thaw has.)  enter: the groups to return to in *ret. */
struct cop_cgroup_visit {
        int fd[COP_CG_MAX]; /* owned; cgroup.procs of where it came from, -EBADF = not moved */
};
int cop_cgroup_enter(struct cop_cgroup *cg, struct cop_cgroup_visit *ret, struct cop_error *err);
void cop_cgroup_leave(struct cop_cgroup_visit *visit);
int cop_cgroup_stats(struct cop_cgroup *cg, struct cop_cgroup_stats *ret, struct cop_error *err);

/* Sends a signal to every process but `except`; the number of processes found. */
int cop_cgroup_signal(struct cop_cgroup *cg, int signo, pid_t except);
/* SIGKILL to all, atomically where the kernel can (cgroup.kill, 5.14).  Returns at once. */
void cop_cgroup_kill(struct cop_cgroup *cg);
/* Stops or continues all processes (v2 freezer or v1 freezer hierarchy).  Returns at once. */
int cop_cgroup_freeze(struct cop_cgroup *cg, bool frozen, struct cop_error *err);
bool cop_cgroup_is_frozen(struct cop_cgroup *cg);
/* Removes the empty folders: 0, or -EBUSY while a process is left (try again); a missing folder is fine. */
int cop_cgroup_remove(struct cop_cgroup *cg);

/* For a sandbox whose keeper is gone: kills what is left in its cgroup and removes it; at most max_wait_msec.  0, also
 * when there is none; -EBUSY. */
int cop_cgroup_cleanup(const char *name, unsigned max_wait_msec, struct cop_error *err);
