/* One sandbox: namespaces, layers, cgroup, and coppice-init in it.  The narrow interface behind which a second backend (a
 * virtual machine per sandbox) can stand: start, control socket, kill, stats, limits, remove.
 *
 * A sandbox object belongs to one single-threaded process (the keeper), which must be the parent of init and stay alive:
 * its death kills the sandbox.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/cgroup.h"
#include "sandbox/userns.h"

struct cop_sandbox_spec {
        const char *const *lower; /* borrowed, as all strings here; read-only layers, topmost first */
        size_t lower_count;
        const char *upper;    /* folder with upper/ and work/ */
        const char *ipc;      /* folder that is /run/coppice inside; NULL = none */
        const char *hostname; /* NULL = "sandbox" */
        const char *cgroup;   /* name below the coppice cgroup */
        uint32_t uid_base;    /* >= 65536 */
        struct cop_limits limits;
        uint64_t nofile;                   /* 0 = the default */
        uint32_t default_uid, default_gid; /* of commands and file operations that name no user */
        const char *workdir;               /* default folder inside, absolute; NULL = init's own default */
        const char *init_path;             /* host path of coppice-init */
        bool hold;                         /* stop before init's program: the namespaces are for a thaw */
};

struct cop_sandbox;

/* The first part of a start, for when the layers come later: cgroup, namespaces, id maps and a first process that waits.  Looks at neither
 * lower, upper, hostname nor hold.  Blocks for some milliseconds.  On failure nothing is left. */
int cop_sandbox_prepare(const struct cop_sandbox_spec *spec, struct cop_sandbox **ret, struct cop_error *err);
/* Makes everything and executes init; returns when init's program runs, before it said READY.  *sb is what was prepared of this same
 * spec (but for what that does not look at), NULL = nothing was.  Blocks for some milliseconds, at most 10 s.  On failure nothing is left,
 * and *sb is NULL.  Errors: start_failed, unsupported, bad_request, disk_full… */
int cop_sandbox_start(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err);
/* The same in two parts, between which its first process mounts the layers: the second waits for that. */
int cop_sandbox_begin(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err);
int cop_sandbox_finish(const struct cop_sandbox_spec *spec, struct cop_sandbox **sb, struct cop_error *err);

pid_t cop_sandbox_pid(const struct cop_sandbox *sb);           /* host pid of init; to be reaped by the caller */
int cop_sandbox_pidfd(const struct cop_sandbox *sb);           /* borrowed; of init */
int cop_sandbox_control_fd(const struct cop_sandbox *sb);      /* borrowed; SOCK_SEQPACKET to init, non-blocking */
struct cop_cgroup *cop_sandbox_cgroup(struct cop_sandbox *sb); /* borrowed */

/* -- thawing into a sandbox that was started with `hold` -------------------------------------------------------------- */

/* Descriptors of the namespaces that the waiting first process made; all owned by the caller. */
struct cop_sandbox_namespaces {
        int user_fd, mount_fd, net_fd, ipc_fd, uts_fd;
};
int cop_sandbox_namespaces(const struct cop_sandbox *sb, struct cop_sandbox_namespaces *ret, struct cop_error *err);
int cop_sandbox_root(const struct cop_sandbox *sb); /* the root folder inside, O_PATH; borrowed */
/* The tree's first process, a child of the caller, takes the waiting one's place, which is killed: its pid is returned, to be reaped by
 * the caller, who need not wait for that.  Takes over pidfd and control_fd (the keeper's end of init's control socket). */
pid_t cop_sandbox_set_init(struct cop_sandbox *sb, pid_t pid, int pidfd, int control_fd);
/* Another hostname, also in /etc, for a sandbox in which nothing runs: its tree stands still (rename.c).  Blocks for a millisecond, at most
 * 10 s.  disk_full, io_error… */
int cop_sandbox_rename(struct cop_sandbox *sb, const char *hostname, struct cop_error *err);
/* In the first process of the thawed tree's pid namespace: /proc of that namespace, masked as at a start. */
int cop_sandbox_renew_proc(struct cop_error *err);
/* Inode of init's end of the control socket, by which the freezer knows it. */
/* After a thaw: init's end is this descriptor's. */
void cop_sandbox_note_control(struct cop_sandbox *sb, int init_end_fd);
void cop_sandbox_control_inode(const struct cop_sandbox *sb, uint64_t *ret_dev, uint64_t *ret_ino);

/* SIGKILL to init and with it, by the end of the pid namespace, to everything inside.  Returns at once. */
void cop_sandbox_kill(struct cop_sandbox *sb);
/* After init was reaped: removes the cgroup.  0, or -EBUSY (try again shortly). */
int cop_sandbox_wipe(struct cop_sandbox *sb);
/* Kills and removes what is left, waiting for it at most 2 s; returns NULL.  May leave a child of the caller that waits for
 * the disk and then ends by itself. */
struct cop_sandbox *cop_sandbox_free(struct cop_sandbox *sb);
static inline void cop_sandbox_freep(struct cop_sandbox **sb)
{
        *sb = cop_sandbox_free(*sb);
}
