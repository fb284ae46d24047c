/* Members become files below one folder.  Every step is taken without following links, and nothing is ever replaced. */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <stdint.h>

#include "base/err.h"
#include "pack/place.h"
#include "pack/stream.h"
#include "pack/sums.h"

struct cop_extract {
        int root_fd;                    /* borrowed */
        struct cop_pack_stream *stream; /* borrowed */
        struct archive *archive;        /* borrowed */
        struct cop_sums *sums;          /* borrowed */
        uint64_t room;                  /* bytes that may still be written */
        int parent_fd;                  /* owned: the folder of the last member, -EBADF = none */
        char parent[sizeof(((struct cop_place *)0)->path)];
};

/* The member that was just read, with its data (into the checksums too).  layers: as for cop_place_of. */
int cop_extract_member(struct cop_extract *x, struct archive_entry *entry, const struct cop_place *place, size_t layers,
                       struct cop_error *err);
/* Its data only goes into the checksums. */
int cop_extract_skip(struct cop_extract *x, struct cop_error *err);
void cop_extract_done(struct cop_extract *x);
