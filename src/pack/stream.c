#include "pack/stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define LEVEL 1           /* memory and .pyc files: higher levels take twice as long for a few per cent */
#define WINDOW_LOG_MAX 24 /* 16 MiB for a reader */
#define ARCHIVE_BLOCK (64 << 10)

struct cop_pack_stream {
        int fd; /* borrowed */
        struct archive *archive;
        ZSTD_CCtx *packer;
        ZSTD_DCtx *unpacker;
        char *raw, *plain; /* owned: compressed; what libarchive reads */
        size_t raw_room, plain_room;
        ZSTD_inBuffer in;
        bool frame_ended, eof;
        struct cop_error err; /* errnum != 0: of the descriptor or the frame */
};

static struct cop_pack_stream *stream_new(int fd)
{
        struct cop_pack_stream *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        s->fd = fd;
        s->raw_room = 128 << 10;
        s->plain_room = 128 << 10;
        s->raw = malloc(s->raw_room);
        s->plain = malloc(s->plain_room);
        return s->raw && s->plain ? s : cop_pack_stream_free(s);
}

struct cop_pack_stream *cop_pack_stream_free(struct cop_pack_stream *s)
{
        if (!s)
                return NULL;
        archive_free(s->archive); /* may still call back */
        ZSTD_freeCCtx(s->packer);
        ZSTD_freeDCtx(s->unpacker);
        free(s->raw);
        free(s->plain);
        free(s);
        return NULL;
}

int cop_pack_stream_fail(struct cop_pack_stream *s, struct cop_error *err)
{
        const char *text = archive_error_string(s->archive);

        if (s->err.errnum) {
                if (err)
                        *err = s->err;
                return -s->err.errnum;
        }
        return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged, "the pack is damaged: %s", text ? text : "no archive");
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static int compress(struct cop_pack_stream *s, const void *data, size_t n, ZSTD_EndDirective end)
{
        ZSTD_inBuffer in = {.src = data, .size = n};
        size_t left;

        do {
                ZSTD_outBuffer out = {.dst = s->raw, .size = s->raw_room};
                left = ZSTD_compressStream2(s->packer, &out, &in, end);
                if (ZSTD_isError(left))
                        return cop_error_set(&s->err, EIO, COP_ERR_internal, "compressing: %s",
                                             ZSTD_getErrorName(left));
                int r = cop_write_all(s->fd, s->raw, out.pos);
                if (r < 0)
                        return cop_error_errno(&s->err, r, "writing the pack");
        } while (end == ZSTD_e_end ? left > 0 : in.pos < in.size);
        return 0;
}

static la_ssize_t on_write(struct archive *a, void *userdata, const void *data, size_t n)
{
        struct cop_pack_stream *s = userdata;

        if (s->err.errnum || compress(s, data, n, ZSTD_e_continue) < 0) {
                archive_set_error(a, EIO, "the stream broke off");
                return -1;
        }
        return (la_ssize_t)n;
}

int cop_pack_stream_write(int fd, struct cop_pack_stream **ret, struct archive **ret_archive, struct cop_error *err)
{
        _cleanup_(cop_pack_stream_freep) struct cop_pack_stream *s = stream_new(fd);

        if (!s || !(s->packer = ZSTD_createCCtx()) || !(s->archive = archive_write_new()))
                return cop_error_errno(err, ENOMEM, "packing");
        ZSTD_CCtx_setParameter(s->packer, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(s->packer, ZSTD_c_checksumFlag, 1);
        /* Names are bytes, not text of a locale; attributes' names may hold any byte, which only this form can say. */
        if (archive_write_set_format_pax(s->archive) != ARCHIVE_OK ||
            archive_write_set_format_option(s->archive, NULL, "hdrcharset", "BINARY") != ARCHIVE_OK ||
            archive_write_set_format_option(s->archive, NULL, "xattrheader", "LIBARCHIVE") != ARCHIVE_OK ||
            archive_write_set_bytes_per_block(s->archive, ARCHIVE_BLOCK) != ARCHIVE_OK ||
            archive_write_set_bytes_in_last_block(s->archive, 1) != ARCHIVE_OK ||
            archive_write_open(s->archive, s, NULL, on_write, NULL) != ARCHIVE_OK)
                return cop_pack_stream_fail(s, err);
        *ret_archive = s->archive;
        *ret = TAKE_PTR(s);
        return 0;
}

int cop_pack_stream_finish(struct cop_pack_stream *s, struct cop_error *err)
{
        if (archive_write_close(s->archive) != ARCHIVE_OK)
                return cop_pack_stream_fail(s, err);
        return compress(s, NULL, 0, ZSTD_e_end) < 0 ? cop_pack_stream_fail(s, err) : 0;
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

static int cut_off(struct cop_pack_stream *s)
{
        return cop_error_set(&s->err, EBADMSG, COP_ERR_pack_damaged,
                             "the pack is cut off: its end is missing; copy it again");
}

/* More compressed bytes into `in`: 1, 0 at the end. */
static int refill(struct cop_pack_stream *s)
{
        ssize_t n = 0;

        if (s->eof)
                return 0;
        do
                n = read(s->fd, s->raw, s->raw_room);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return cop_error_errno(&s->err, errno, "reading the pack");
        s->eof = n == 0;
        s->in = (ZSTD_inBuffer){.src = s->raw, .size = (size_t)n};
        return n > 0;
}

static la_ssize_t on_read(struct archive *a, void *userdata, const void **ret)
{
        struct cop_pack_stream *s = userdata;
        ZSTD_outBuffer out = {.dst = s->plain, .size = s->plain_room};

        while (out.pos == 0 && !s->frame_ended && !s->err.errnum) {
                int r = s->in.pos == s->in.size ? refill(s) : 1;
                if (r == 0)
                        cut_off(s);
                if (r <= 0)
                        break;
                size_t left = ZSTD_decompressStream(s->unpacker, &out, &s->in);
                if (ZSTD_isError(left))
                        cop_error_set(&s->err, EBADMSG, COP_ERR_pack_damaged, "the pack is damaged: %s",
                                      ZSTD_getErrorName(left));
                s->frame_ended = left == 0;
        }
        if (s->err.errnum) {
                archive_set_error(a, EIO, "the stream is damaged");
                return -1;
        }
        *ret = s->plain;
        return (la_ssize_t)out.pos;
}

static int check_magic(struct cop_pack_stream *s, struct cop_error *err)
{
        static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
        size_t have = 0;

        while (have < sizeof(magic)) {
                ssize_t n = read(s->fd, s->raw + have, s->raw_room - have);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cop_error_errno(err, errno, "reading the pack");
                if (n == 0)
                        break;
                have += (size_t)n;
        }
        if (have < sizeof(magic) || memcmp(s->raw, magic, sizeof(magic)) != 0)
                return cop_error_set(
                        err, EBADMSG, COP_ERR_pack_damaged,
                        "this is no pack of Coppice (it does not begin as one); `coppice pack` makes them");
        s->in = (ZSTD_inBuffer){.src = s->raw, .size = have};
        return 0;
}

int cop_pack_stream_read(int fd, struct cop_pack_stream **ret, struct archive **ret_archive, struct cop_error *err)
{
        _cleanup_(cop_pack_stream_freep) struct cop_pack_stream *s = stream_new(fd);

        if (!s || !(s->unpacker = ZSTD_createDCtx()) || !(s->archive = archive_read_new()))
                return cop_error_errno(err, ENOMEM, "unpacking");
        ZSTD_DCtx_setParameter(s->unpacker, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
        int r = check_magic(s, err);
        if (r < 0)
                return r;
        if (archive_read_support_format_tar(s->archive) != ARCHIVE_OK ||
            archive_read_open(s->archive, s, NULL, on_read, NULL) != ARCHIVE_OK)
                return cop_pack_stream_fail(s, err);
        *ret_archive = s->archive;
        *ret = TAKE_PTR(s);
        return 0;
}

int cop_pack_stream_ended(struct cop_pack_stream *s, struct cop_error *err)
{
        const void *data;
        const char *p;
        la_ssize_t n;

        /* Zeros fill the archive's last block; libarchive has read ahead of them. */
        while ((n = on_read(s->archive, s, &data)) > 0)
                for (p = data; n > 0; p++, n--)
                        if (*p)
                                return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                                                     "the pack is damaged: data behind its end");
        if (n < 0)
                return cop_pack_stream_fail(s, err);
        int r = s->in.pos == s->in.size ? refill(s) : 1;
        if (r < 0)
                return cop_pack_stream_fail(s, err);
        return r > 0 ? cop_error_set(err, EBADMSG, COP_ERR_pack_damaged, "the pack is damaged: data behind its end")
                     : 0;
}
