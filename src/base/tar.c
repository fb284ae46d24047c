#include "tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "utf8.h"

/* A header block (POSIX.1-1988; the GNU variant differs in magic and prefix). */
struct block {
        char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, linkname[100], magic[6],
                version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct block) == COP_TAR_BLOCK, "a header is one block");

#define EXTENDED_IN_A_ROW_MAX 8
#define OCTAL_SIZE_MAX 077777777777ULL /* 8 GiB - 1 */

struct cop_tar_reader {
        cop_tar_read_fn fn;
        void *userdata; /* borrowed */
        uint64_t left;  /* data of the current entry not read yet */
        size_t padding; /* after it */
        bool ended;
        /* What extended headers said about the next entry. */
        struct cop_buf name, target; /* NUL-terminated; len 0 = not given */
        bool has_size;
        uint64_t size;
        bool has_mtime;
        int64_t mtime;
        char plain_name[COP_TAR_NAME_MAX + 1], plain_target[sizeof(((struct block *)0)->linkname) + 1];
};

int cop_tar_reader_new(cop_tar_read_fn fn, void *userdata, struct cop_tar_reader **ret, struct cop_error *err)
{
        struct cop_tar_reader *r = calloc(1, sizeof(*r));

        if (!r)
                return cop_error_errno(err, ENOMEM, "reading an archive");
        r->fn = fn;
        r->userdata = userdata;
        cop_buf_init(&r->name, COP_TAR_NAME_MAX);
        cop_buf_init(&r->target, COP_TAR_NAME_MAX);
        *ret = r;
        return 0;
}

struct cop_tar_reader *cop_tar_reader_free(struct cop_tar_reader *r)
{
        if (r) {
                cop_buf_done(&r->name);
                cop_buf_done(&r->target);
                free(r);
        }
        return NULL;
}

static int bad(struct cop_error *err, const char *what)
{
        return cop_error_set(err, EBADMSG, COP_ERR_bad_request, "the archive is damaged: %s", what);
}

/* -- reading bytes ------------------------------------------------------------------------------------------------- */

/* n bytes, or with may_end none at all. */
static int read_exactly(struct cop_tar_reader *r, void *data, size_t n, bool may_end, struct cop_error *err)
{
        char *p = data;

        for (size_t done = 0; done < n;) {
                ssize_t got = r->fn(r->userdata, p + done, n - done, err);
                if (got < 0)
                        return (int)got;
                if (got == 0)
                        return done == 0 && may_end ? 0 : bad(err, "it ends too early");
                done += (size_t)got;
        }
        return 1;
}

static int skip(struct cop_tar_reader *r, uint64_t n, struct cop_error *err)
{
        char chunk[4096];

        while (n > 0) {
                size_t part = MIN_OF(n, (uint64_t)sizeof(chunk));
                int e = read_exactly(r, chunk, part, false, err);
                if (e < 0)
                        return e;
                n -= part;
        }
        return 0;
}

/* -- fields of a block --------------------------------------------------------------------------------------------- */

/* Octal digits between spaces, ended by NUL or space or the field; or base 256 with the top bit set (GNU). */
static int parse_number(const char *field, size_t n, uint64_t *ret)
{
        const unsigned char *p = (const unsigned char *)field;
        uint64_t value = 0;
        size_t i = 0;

        if (p[0] & 0x80) {
                if (p[0] != 0x80)
                        return -EINVAL; /* negative, or 64 bits are too few */
                for (i = 1; i < n; i++) {
                        if (value > UINT64_MAX >> 8)
                                return -EINVAL;
                        value = value << 8 | p[i];
                }
        } else {
                while (i < n && p[i] == ' ')
                        i++;
                for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
                        value = value << 3 | (uint64_t)(p[i] - '0'); /* at most 12 digits: 36 bits */
                for (; i < n; i++)
                        if (p[i] != ' ' && p[i] != '\0')
                                return -EINVAL;
        }
        if (value > INT64_MAX)
                return -EINVAL;
        *ret = value;
        return 0;
}

static unsigned compute_checksum(const struct block *b)
{
        const unsigned char *p = (const unsigned char *)b;
        unsigned sum = 0;

        for (size_t i = 0; i < sizeof(*b); i++)
                sum += p[i];
        for (size_t i = 0; i < sizeof(b->checksum); i++)
                sum += ' ' - (unsigned char)b->checksum[i];
        return sum;
}

static bool is_zero(const struct block *b)
{
        static const struct block zero;

        return memcmp(b, &zero, sizeof(zero)) == 0;
}

static bool has_prefix(const struct block *b)
{
        return memcmp(b->magic, "ustar\0", 6) == 0;
}

/* -- extended headers ---------------------------------------------------------------------------------------------- */

static int set_text(struct cop_buf *buf, const char *value, size_t n, struct cop_error *err)
{
        cop_buf_clear(buf);
        if (memchr(value, '\0', n))
                return bad(err, "a name with a NUL inside");
        int e = cop_buf_add(buf, value, n);
        if (e == -EMSGSIZE)
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_bad_request,
                                     "the archive has a name of more than %d bytes", COP_TAR_NAME_MAX);
        return e < 0 ? cop_error_errno(err, -e, "reading an archive") : 0;
}

/* Digits up to the end or a '.', whose fraction is dropped; times before 1970 become 0. */
static int parse_decimal(const char *s, size_t n, uint64_t *ret)
{
        uint64_t value = 0;
        bool negative = n > 0 && s[0] == '-';
        size_t i = negative, first = i;

        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++) {
                if (value > (uint64_t)INT64_MAX / 10 - 1)
                        return -EINVAL;
                value = value * 10 + (uint64_t)(s[i] - '0');
        }
        if (i == first || (i < n && s[i] != '.'))
                return -EINVAL;
        *ret = negative ? 0 : value;
        return 0;
}

static int apply_record(struct cop_tar_reader *r, const char *key, size_t key_len, const char *value, size_t n,
                        struct cop_error *err)
{
        uint64_t number;

#define KEY_IS(text) (key_len == sizeof(text) - 1 && memcmp(key, text, key_len) == 0)
        if (KEY_IS("path"))
                return set_text(&r->name, value, n, err);
        if (KEY_IS("linkpath"))
                return set_text(&r->target, value, n, err);
        if (KEY_IS("size")) {
                if (parse_decimal(value, n, &number) < 0 || memchr(value, '.', n) || value[0] == '-')
                        return bad(err, "a size that is no number");
                r->has_size = true;
                r->size = number;
        } else if (KEY_IS("mtime")) {
                if (parse_decimal(value, n, &number) < 0)
                        return bad(err, "a time that is no number");
                r->has_mtime = true;
                r->mtime = (int64_t)number;
        } else if (key_len >= 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
                return cop_error_set(err, ENOTSUP, COP_ERR_unsupported,
                                     "the archive has sparse files; make it without --sparse");
        }
#undef KEY_IS
        return 0;
}

/* Records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record (POSIX.1-2001, pax). */
static int apply_pax(struct cop_tar_reader *r, const char *data, size_t n, struct cop_error *err)
{
        for (size_t at = 0; at < n;) {
                size_t length = 0, i = at;
                for (; i < n && i - at < 6 && data[i] >= '0' && data[i] <= '9'; i++)
                        length = length * 10 + (size_t)(data[i] - '0');
                if (i == at || i == n || data[i] != ' ' || length > n - at || length < i - at + 4 ||
                    data[at + length - 1] != '\n')
                        return bad(err, "a malformed extended header");
                const char *key = data + i + 1, *end = data + at + length - 1;
                const char *equals = memchr(key, '=', (size_t)(end - key));
                if (!equals || equals == key)
                        return bad(err, "a malformed extended header");
                int e = apply_record(r, key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), err);
                if (e < 0)
                        return e;
                at += length;
        }
        return 0;
}

static int read_extended(struct cop_tar_reader *r, char type, uint64_t size, struct cop_error *err)
{
        _cleanup_free_ char *data = NULL;

        if (size > COP_TAR_PAX_MAX)
                return bad(err, "an extended header of more than 64 KiB");
        data = malloc((size_t)size + 1);
        if (!data)
                return cop_error_errno(err, ENOMEM, "reading an archive");
        int e = read_exactly(r, data, (size_t)size, false, err);
        if (e >= 0)
                e = skip(r, cop_tar_padding(size), err);
        if (e < 0)
                return e;
        data[size] = '\0';
        switch (type) {
        case 'x':
                return apply_pax(r, data, (size_t)size, err);
        case 'L':
                return set_text(&r->name, data, strlen(data), err);
        case 'K':
                return set_text(&r->target, data, strlen(data), err);
        default: /* 'g': defaults for all that follows, in practice a comment (git archive) */
                return 0;
        }
}

/* -- entries ------------------------------------------------------------------------------------------------------- */

static void forget_extended(struct cop_tar_reader *r)
{
        cop_buf_clear(&r->name);
        cop_buf_clear(&r->target);
        r->has_size = r->has_mtime = false;
}

static void copy_field(char *ret, const char *field, size_t n)
{
        size_t len = strnlen(field, n);

        memcpy(ret, field, len);
        ret[len] = '\0';
}

static const char *entry_name(struct cop_tar_reader *r, const struct block *b)
{
        char *out = r->plain_name;

        if (r->name.len > 0)
                return r->name.data;
        if (has_prefix(b) && b->prefix[0]) {
                copy_field(out, b->prefix, sizeof(b->prefix));
                out += strlen(out);
                *out++ = '/';
        }
        copy_field(out, b->name, sizeof(b->name));
        return r->plain_name;
}

static int fill_type(struct cop_tar_entry *e, char type, struct cop_error *err)
{
        size_t n = strlen(e->name);

        switch (type) {
        case '\0': /* before POSIX */
        case '7':  /* contiguous file */
        case '0':
                e->type = n > 0 && e->name[n - 1] == '/' ? COP_TAR_FOLDER : COP_TAR_FILE;
                return 0;
        case '1':
        case '2':
        case '5':
                e->type = (enum cop_tar_type)type;
                return 0;
        default:
                return cop_error_set(err, ENOTSUP, COP_ERR_unsupported,
                                     "%.300s in the archive is no file, folder or link (type '%c'); leave it out",
                                     e->name, type > ' ' && type < 127 ? type : '?');
        }
}

static int fill_entry(struct cop_tar_reader *r, const struct block *b, uint64_t size, struct cop_tar_entry *e,
                      struct cop_error *err)
{
        uint64_t mode, uid, gid, mtime;

        if (parse_number(b->mode, sizeof(b->mode), &mode) < 0)
                return bad(err, "a mode that is no number");
        /* Not used by us, hence no reason to refuse: large ids of other machines. */
        if (parse_number(b->uid, sizeof(b->uid), &uid) < 0 || uid > UINT32_MAX)
                uid = 0;
        if (parse_number(b->gid, sizeof(b->gid), &gid) < 0 || gid > UINT32_MAX)
                gid = 0;
        if (parse_number(b->mtime, sizeof(b->mtime), &mtime) < 0)
                mtime = 0;
        *e = (struct cop_tar_entry){.name = entry_name(r, b),
                                    .mode = (mode_t)(mode & 07777),
                                    .uid = (unsigned)uid,
                                    .gid = (unsigned)gid,
                                    .mtime = r->has_mtime ? r->mtime : (int64_t)mtime};
        if (!e->name[0])
                return bad(err, "an entry without a name");
        int k = fill_type(e, b->type, err);
        if (k < 0)
                return k;
        if (e->type == COP_TAR_SYMLINK || e->type == COP_TAR_HARDLINK) {
                copy_field(r->plain_target, b->linkname, sizeof(b->linkname));
                e->target = r->target.len > 0 ? r->target.data : r->plain_target;
                if (!e->target[0])
                        return bad(err, "a link without a target");
        }
        if (e->type == COP_TAR_FILE)
                e->size = r->has_size ? r->size : size;
        else if (size > 0 && e->type != COP_TAR_HARDLINK) /* pax lets hard links carry a size without data */
                return bad(err, "data behind a folder or link");
        return 0;
}

/* Only zeros may follow the first zero block; an archive cut off behind it is taken. */
static int read_end(struct cop_tar_reader *r, struct cop_error *err)
{
        struct block b;

        r->ended = true;
        int e = read_exactly(r, &b, sizeof(b), true, err);
        return e <= 0 || is_zero(&b) ? MIN_OF(e, 0) : bad(err, "data behind its end");
}

int cop_tar_next(struct cop_tar_reader *r, struct cop_tar_entry *ret, struct cop_error *err)
{
        struct block b;
        unsigned want;
        uint64_t size, sum;
        int e;

        if (r->ended)
                return 0;
        e = skip(r, r->left, err);
        if (e == 0)
                e = skip(r, r->padding, err);
        if (e < 0)
                return e;
        r->left = r->padding = 0;
        forget_extended(r);
        for (int extended = 0; extended <= EXTENDED_IN_A_ROW_MAX; extended++) {
                e = read_exactly(r, &b, sizeof(b), false, err);
                if (e < 0)
                        return e;
                if (is_zero(&b))
                        return extended == 0 ? read_end(r, err) : bad(err, "it ends after an extended header");
                want = compute_checksum(&b);
                if (parse_number(b.checksum, sizeof(b.checksum), &sum) < 0 || sum != want)
                        return bad(err, "a header with a wrong checksum (is it compressed?)");
                if (parse_number(b.size, sizeof(b.size), &size) < 0)
                        return bad(err, "a size that is no number");
                if (!strchr("xgLK", b.type) || b.type == '\0') {
                        e = fill_entry(r, &b, size, ret, err);
                        r->left = e < 0 ? 0 : ret->size;
                        r->padding = cop_tar_padding(r->left);
                        return e < 0 ? e : 1;
                }
                e = read_extended(r, b.type, size, err);
                if (e < 0)
                        return e;
        }
        return bad(err, "too many extended headers in a row");
}

ssize_t cop_tar_data(struct cop_tar_reader *r, void *buf, size_t n, struct cop_error *err)
{
        if (r->left == 0)
                return 0;
        ssize_t got = r->fn(r->userdata, buf, MIN_OF((uint64_t)n, r->left), err);
        if (got == 0)
                return bad(err, "it ends too early");
        if (got > 0)
                r->left -= (uint64_t)got;
        return got;
}

/* -- names --------------------------------------------------------------------------------------------------------- */

int cop_tar_clean_name(const char *name, char ret[static COP_TAR_NAME_MAX + 1])
{
        size_t n = 0;

        if (name[0] == '/')
                return -EINVAL;
        while (*name) {
                size_t part = strcspn(name, "/");
                if (part == 2 && memcmp(name, "..", 2) == 0)
                        return -EINVAL;
                if (part > 0 && !(part == 1 && name[0] == '.')) {
                        if (n + part + 1 > COP_TAR_NAME_MAX)
                                return -EINVAL;
                        if (n > 0)
                                ret[n++] = '/';
                        memcpy(ret + n, name, part);
                        n += part;
                }
                name += part + strspn(name + part, "/");
        }
        ret[n] = '\0';
        return n > 0;
}

bool cop_tar_link_stays(const char *name, const char *target)
{
        long depth = 0;

        if (target[0] == '/')
                return false;
        for (const char *p = name; (p = strchr(p, '/')); p++)
                depth++;
        while (*target) {
                size_t part = strcspn(target, "/");
                if (part == 2 && memcmp(target, "..", 2) == 0) {
                        if (--depth < 0)
                                return false;
                } else if (part > 0 && !(part == 1 && target[0] == '.')) {
                        depth++;
                }
                target += part + strspn(target + part, "/");
        }
        return true;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

/* LENGTH counts its own digits. */
static int add_record(struct cop_buf *out, const char *key, const char *value)
{
        size_t rest = strlen(key) + strlen(value) + 3, length = rest + 1;

        while (length != rest + (size_t)snprintf(NULL, 0, "%zu", length))
                length = rest + (size_t)snprintf(NULL, 0, "%zu", length);
        return cop_buf_addf(out, "%zu %s=%s\n", length, key, value);
}

static bool is_plain(const char *s, size_t max)
{
        size_t n = 0;

        for (; s[n]; n++)
                if ((unsigned char)s[n] >= 0x80)
                        return false;
        return n <= max;
}

static int add_block(struct cop_buf *out, const struct cop_tar_entry *e, char type, uint64_t size)
{
        struct block b = {.magic = "ustar", .version = {'0', '0'}, .type = type};

        memcpy(b.name, e->name, MIN_OF(strlen(e->name), sizeof(b.name)));
        if (e->target)
                memcpy(b.linkname, e->target, MIN_OF(strlen(e->target), sizeof(b.linkname)));
        snprintf(b.mode, sizeof(b.mode), "%07o", e->mode & 07777u);
        snprintf(b.uid, sizeof(b.uid), "%07o", e->uid & 07777777u);
        snprintf(b.gid, sizeof(b.gid), "%07o", e->gid & 07777777u);
        snprintf(b.size, sizeof(b.size), "%011llo", size > OCTAL_SIZE_MAX ? 0ULL : (unsigned long long)size);
        snprintf(b.mtime, sizeof(b.mtime), "%011llo",
                 (unsigned long long)e->mtime > OCTAL_SIZE_MAX ? OCTAL_SIZE_MAX : (unsigned long long)e->mtime);
        snprintf(b.checksum, sizeof(b.checksum), "%06o", compute_checksum(&b));
        b.checksum[7] = ' ';
        return cop_buf_add(out, &b, sizeof(b));
}

static int add_padding(struct cop_buf *out, size_t n)
{
        static const char zeros[COP_TAR_BLOCK];

        return cop_buf_add(out, zeros, cop_tar_padding(n));
}

int cop_tar_add_header(struct cop_buf *out, const struct cop_tar_entry *e)
{
        struct cop_tar_entry extended = {.name = "././@PaxHeader", .mode = 0644, .mtime = e->mtime};
        bool long_name = !is_plain(e->name, sizeof(((struct block *)0)->name));
        bool long_target = e->target && !is_plain(e->target, sizeof(((struct block *)0)->linkname));
        _cleanup_buf_ struct cop_buf pax = COP_BUF(4 * COP_TAR_PAX_MAX);
        char digits[24];
        int r = 0;

        /* "BINARY": the names that follow are bytes, not UTF-8 (pax, hdrcharset). */
        if ((long_name && !cop_utf8_valid(e->name, strlen(e->name))) ||
            (long_target && !cop_utf8_valid(e->target, strlen(e->target))))
                r = add_record(&pax, "hdrcharset", "BINARY");
        if (r == 0 && long_name)
                r = add_record(&pax, "path", e->name);
        if (r == 0 && long_target)
                r = add_record(&pax, "linkpath", e->target);
        if (r == 0 && e->size > OCTAL_SIZE_MAX) {
                snprintf(digits, sizeof(digits), "%llu", (unsigned long long)e->size);
                r = add_record(&pax, "size", digits);
        }
        if (r == 0 && pax.len > 0) {
                r = add_block(out, &extended, 'x', pax.len);
                if (r == 0)
                        r = cop_buf_add(out, pax.data, pax.len);
                if (r == 0)
                        r = add_padding(out, pax.len);
        }
        return r < 0 ? r : add_block(out, e, (char)e->type, e->size);
}
