/* libarchive's pax format over libzstd over a descriptor: one frame with a checksum of its own, memory bounded by its window. */
#pragma once

#include <archive.h>

#include "base/err.h"

struct cop_pack_stream;

/* fd is borrowed. */
int cop_pack_stream_write(int fd, struct cop_pack_stream **ret, struct archive **ret_archive, struct cop_error *err);
/* bad_request when it does not begin as a pack does. */
int cop_pack_stream_read(int fd, struct cop_pack_stream **ret, struct archive **ret_archive, struct cop_error *err);
/* Ends the archive and the frame. */
int cop_pack_stream_finish(struct cop_pack_stream *s, struct cop_error *err);
/* Nothing but the end of the frame follows, and nothing behind that. */
int cop_pack_stream_ended(struct cop_pack_stream *s, struct cop_error *err);
/* What went wrong with the archive: errors of the descriptor or the frame, else what libarchive says. */
int cop_pack_stream_fail(struct cop_pack_stream *s, struct cop_error *err);
struct cop_pack_stream *cop_pack_stream_free(struct cop_pack_stream *s); /* the archive too; takes NULL */

static inline void cop_pack_stream_freep(struct cop_pack_stream **s)
{
        *s = cop_pack_stream_free(*s);
}
