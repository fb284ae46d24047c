/* The child's half of starting a sandbox: from clone to execve of coppice-init.  See sandbox.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/layers.h"

struct cop_inside {
        int ipc_fd, cpu_fd; /* detached mounts; negative: none */
        int init_fd;        /* the program */
        int control_fd;     /* becomes COP_INIT_CONTROL_FD */
        int sync_fd;        /* SOCK_SEQPACKET to the parent */
        uint64_t nofile, shm_max;
        uint32_t default_uid, default_gid;
        const char *workdir;
};

/* One byte each; a failure of the child is a struct cop_error instead. */
#define COP_SYNC_MAPPED 'm'  /* parent: the ids are mapped; hostname and layers follow, perhaps much later */
#define COP_SYNC_MOUNTED 'd' /* child: done */
#define COP_SYNC_EXECUTE 'x' /* parent: you are in the cgroup, go */

_Noreturn void cop_inside_run(const struct cop_inside *in);
