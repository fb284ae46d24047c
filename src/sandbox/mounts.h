/* The mount tree of a sandbox around its root filesystem: /dev, /proc, /sys, /run. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct cop_mount_sources {
        int ipc_fd;       /* borrowed; detached mount that appears at /run/coppice; negative: none */
        int cpu_fd;       /* borrowed; detached mount of /sys/devices/system/cpu; negative: none */
        uint64_t shm_max; /* bytes of /dev/shm; 0 = half of the machine's memory */
        const char *hostname;
};

/* In the sandbox's namespaces, with the current directory on the future root: clones the host's harmless device nodes,
 * pivots, mounts everything, hides the old root for good.  Afterwards / and the current directory are the sandbox's. */
/* In the sandbox's mount namespace but a new pid namespace: /proc of that one, masked the same way, over the old one. */
int cop_mounts_renew_proc(struct cop_error *err);
int cop_mounts_setup(const struct cop_mount_sources *sources, struct cop_error *err);
