/* A guest: the engine's work done from within the namespaces of a tree, for engines that could not come back.
 *
 * Theory of operation.  Questions about a tree's sockets, System V objects and host name can only be asked inside its
 * namespaces.  An engine that may return to its own ones just goes there for a moment.  The mere owner of the tree's user
 * namespace may not: in his own namespaces he has no right, neither to enter another without having entered its user
 * namespace first nor ever to leave that again.  So the work is given to a guest: a process that shares the engine's memory and
 * descriptors (CLONE_VM, CLONE_FILES), enters the tree's user, uts, network and ipc namespaces for good, does the work, and
 * ends.  The calling thread stands still meanwhile (CLONE_VFORK), so that the work runs as if it had been called: what it
 * opens, allocates and writes is the engine's.  In the user namespace it has all rights that the namespace gives: to trace
 * whoever lives there, and to open what belongs to any of its users.
 *
 * The guest stays in the engine's pid and mount namespaces: it takes no number inside the tree, is seen by nobody there, and
 * paths mean what they mean to the engine.  It lives as long as the work; it is killed when the calling thread dies.  Its end gives no
 * SIGCHLD.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Whether the calling thread may not come back into its own uts, network and ipc namespaces. */
bool cop_guest_needed(void);
/* Runs work(userdata) as a guest of the tree whose first process is `root`; returns what it returned.  Other errors (not the owner,
 * no memory for a process) are told in err. */
int cop_guest_run(pid_t root, int (*work)(void *userdata), void *userdata, struct cop_error *err);
