/* Packing: a node's folder and its layers become members (base/pack.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct cop_pack_job {
        int node_fd;          /* borrowed */
        const int *layer_fds; /* borrowed; topmost first */
        size_t layers;
        const char *manifest; /* what the daemon says of the node: JSON */
        bool memory;
        int out_fd; /* borrowed */
};
/* Errors: image_damaged, unsupported (a name too long for an archive), io_error. */
int cop_pack_write(const struct cop_pack_job *job, struct cop_error *err);
