/* Writing single members: for write.c, which knows which there are. */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "pack/stream.h"
#include "pack/sums.h"

struct cop_pack_output {
        struct cop_pack_stream *stream; /* owned */
        struct archive *archive;        /* borrowed from it */
        struct cop_sums *sums;          /* owned */
        char *buffer;                   /* owned: COP_PACK_CHUNK */
};
#define COP_PACK_CHUNK (256u << 10)

/* Ranges of a file that are not holes, ascending. */
struct cop_ranges {
        struct cop_range {
                uint64_t offset, length;
        } * list; /* owned */
        size_t count;
};
void cop_ranges_done(struct cop_ranges *r);
/* Sorts and joins those that touch; when more are left than an archive should list, those with the smallest gaps too. */
void cop_ranges_tidy(struct cop_ranges *r);

int cop_pack_output_open(struct cop_pack_output *o, int fd, struct cop_error *err);
void cop_pack_output_done(struct cop_pack_output *o);

/* Bytes of our own as a member. */
int cop_pack_add_text(struct cop_pack_output *o, const char *name, const char *text, size_t n, struct cop_error *err);
/* A regular file.  only (may be NULL): everything else of it is a hole. */
int cop_pack_add_file(struct cop_pack_output *o, const char *name, int fd, struct cop_ranges *only,
                      struct cop_error *err);
/* A folder, link, FIFO or whiteout: `base` in dir_fd, or dir_fd itself when NULL. */
int cop_pack_add_node(struct cop_pack_output *o, const char *name, int dir_fd, const char *base, const struct stat *st,
                      struct cop_error *err);
int cop_pack_add_hardlink(struct cop_pack_output *o, const char *name, const char *target, const struct stat *st,
                          struct cop_error *err);
/* The list of all members before it. */
int cop_pack_add_sums(struct cop_pack_output *o, struct cop_error *err);
