/* The tar format without files: a strict, bounded reader and a writer of headers.
 *
 * Reads ustar (POSIX.1-1988), pax (POSIX.1-2001) and GNU long names; regular files, folders, symbolic and hard links.
 * Anything else in an archive (devices, FIFOs, sparse files, a wrong checksum) is an error, not a guess.  An archive is
 * foreign bytes: fuzz target tests/fuzz/fuzz-tar.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

#define COP_TAR_BLOCK 512
#define COP_TAR_NAME_MAX 4095 /* bytes of a name or link target */
#define COP_TAR_PAX_MAX 65536 /* bytes of one extended header */

enum cop_tar_type {
        COP_TAR_FILE = '0',
        COP_TAR_HARDLINK = '1',
        COP_TAR_SYMLINK = '2',
        COP_TAR_FOLDER = '5',
};

struct cop_tar_entry {
        enum cop_tar_type type;
        const char *name;   /* never empty, no NUL inside; otherwise as in the archive */
        const char *target; /* of links, never empty; NULL otherwise */
        uint64_t size;      /* of data that follows; 0 unless a file */
        mode_t mode;        /* 0-07777 */
        unsigned uid, gid;
        int64_t mtime; /* seconds since 1970, >= 0 */
};

/* Bytes read, at most n; 0 at the end, negative errno with err set. */
typedef ssize_t (*cop_tar_read_fn)(void *userdata, void *buf, size_t n, struct cop_error *err);

struct cop_tar_reader;
int cop_tar_reader_new(cop_tar_read_fn fn, void *userdata, struct cop_tar_reader **ret, struct cop_error *err);
struct cop_tar_reader *cop_tar_reader_free(struct cop_tar_reader *r); /* takes NULL */
/* 1 with *ret filled (borrowed, until the next call), 0 at the end of the archive.  Skips data that was not read. */
int cop_tar_next(struct cop_tar_reader *r, struct cop_tar_entry *ret, struct cop_error *err);
/* Data of the current entry: bytes, 0 at its end. */
ssize_t cop_tar_data(struct cop_tar_reader *r, void *buf, size_t n, struct cop_error *err);

static inline void cop_tar_reader_freep(struct cop_tar_reader **r)
{
        *r = cop_tar_reader_free(*r);
}

/* A name inside the archive as a path beneath the target: without "./" and slashes at the end, into ret.  1; 0 when it
 * names the target itself ("./"); -EINVAL when it is absolute, has "..", or is too long. */
int cop_tar_clean_name(const char *name, char ret[static COP_TAR_NAME_MAX + 1]);
/* Whether a symbolic link at `name` (clean) to `target` stays beneath the target, by its text alone. */
bool cop_tar_link_stays(const char *name, const char *target);

/* Appends the header blocks of an entry (a pax header before, where ustar is too small).  uid and gid as given. */
int cop_tar_add_header(struct cop_buf *out, const struct cop_tar_entry *entry);
/* Zeros after n bytes of data, up to the block's end. */
static inline size_t cop_tar_padding(uint64_t n)
{
        return (size_t)(-n & (COP_TAR_BLOCK - 1));
}
