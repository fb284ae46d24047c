/* Unpacking: see base/pack.h.  Everything in a pack is foreign. */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct cop_unpack_job {
        int in_fd;      /* borrowed: the stream */
        int root_fd;    /* borrowed: an empty folder, where everything goes */
        json_t *images; /* borrowed: digests that are here */
        bool files_only;
};
/* Errors: pack_damaged (also: no pack, unsafe members), unsupported (a newer format), image_not_found, image_mismatch, payload_too_large,
 * disk_full, io_error.  What was written so far is then to be deleted. */
int cop_pack_read(const struct cop_unpack_job *job, struct cop_error *err);
