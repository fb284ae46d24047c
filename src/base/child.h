/* Starting programs: nothing complex between fork and exec, an explicit list of descriptors, everything else closed. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"

struct cop_child_fd {
        int source; /* borrowed; a descriptor of the parent */
        int target; /* its number in the child, below 64 */
};

struct cop_child_spec {
        const char *path;               /* program, no PATH search */
        const char *const *argv;        /* NULL-terminated */
        const char *const *env;         /* NULL-terminated; NULL = inherit */
        const char *cwd;                /* NULL = inherit */
        const struct cop_child_fd *fds; /* 0, 1, 2 not named here are /dev/null */
        size_t fd_count;                /* at most 16 */
        bool new_session;               /* setsid() */
        bool detached;    /* double fork: the program is no child of ours and outlives us; no pid to wait for */
        int death_signal; /* PR_SET_PDEATHSIG; 0 = none; not with detached */
};

/* Every signal to its default action, none blocked: what a program expects that somebody else starts. */
void cop_signals_reset(void);

/* Starts it and reports a failed exec as an error (through a close-on-exec pipe).  *ret_pid (may be NULL) is the
 * program's pid, to be reaped by the caller unless detached.  Signal mask and handlers are reset. */
int cop_child_spawn(const struct cop_child_spec *spec, pid_t *ret_pid, struct cop_error *err);

/* The same, with a pipe as its standard output: spec->fds has at most 15 and does not name STDOUT_FILENO.  *ret_fd is the end to
 * read, owned by the caller, blocking and close-on-exec; it ends when the program, and all that it gave the other end to, have closed that.
 * The errors are those of cop_child_spawn and of pipe2(2); nothing is open and nothing runs then. */
int cop_child_spawn_output(const struct cop_child_spec *spec, pid_t *ret_pid, int *ret_fd, struct cop_error *err);
