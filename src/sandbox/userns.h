/* A child in all namespaces of its own, and the ids of its user namespace. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define COP_SANDBOX_IDS 65536u /* host uids and gids of one sandbox, from uid_base on */

/* Forks into new user, pid, mount, network, ipc, uts and time namespaces (the cgroup namespace comes when the child is in its
 * cgroup), born in the cgroup v2 folder cgroup_fd when it is >= 0.  Returns 0 in the child, else its pid and *ret_pidfd.
 * The caller must have one thread. */
pid_t cop_userns_clone(int cgroup_fd, int *ret_pidfd, struct cop_error *err);

/* Maps 0-65535 inside to uid_base… outside, users and groups; returns a descriptor of the user namespace. */
int cop_userns_map(pid_t pid, uint32_t uid_base, struct cop_error *err);

/* In the child, once the ids are mapped: becomes root there. */
int cop_userns_become_root(struct cop_error *err);
