#include "pack/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define LINE 160 /* at most; long names are cut */

struct cop_sums {
        XXH3_state_t *state; /* owned */
        int fd;              /* owned: the list */
        uint64_t size, compared;
        uint64_t at; /* where the data of the member is */
        char name[LINE - 40];
};

int cop_sums_new(struct cop_sums **ret, struct cop_error *err)
{
        struct cop_sums *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "checksums");
        s->state = XXH3_createState();
        s->fd = memfd_create("checksums", MFD_CLOEXEC);
        if (!s->state || s->fd < 0) {
                int r = cop_error_errno(err, s->state ? errno : ENOMEM, "checksums");
                cop_sums_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct cop_sums *cop_sums_free(struct cop_sums *s)
{
        if (!s)
                return NULL;
        XXH3_freeState(s->state);
        cop_close(s->fd);
        free(s);
        return NULL;
}

static void add_text(struct cop_sums *s, const char *text)
{
        XXH3_128bits_update(s->state, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* The order of attributes is the archive's own affair. */
static uint64_t sum_attributes(struct archive_entry *entry)
{
        const char *name;
        const void *value;
        size_t size;
        uint64_t sum = 0;

        archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
                sum += XXH3_64bits_withSeed(value, size, XXH3_64bits(name, strlen(name)));
        return sum;
}

void cop_sums_begin(struct cop_sums *s, struct archive_entry *entry)
{
        const int64_t numbers[] = {
                archive_entry_hardlink(entry) ? 0 : (int64_t)archive_entry_mode(entry),
                archive_entry_uid(entry),
                archive_entry_gid(entry),
                archive_entry_mtime(entry),
                archive_entry_mtime_nsec(entry),
                archive_entry_hardlink(entry) ? 0 : archive_entry_size(entry),
                (int64_t)sum_attributes(entry),
        };
        const char *name = archive_entry_pathname(entry);

        s->at = 0;
        XXH3_128bits_reset(s->state);
        add_text(s, name);
        add_text(s, archive_entry_hardlink(entry));
        add_text(s, archive_entry_symlink(entry));
        XXH3_128bits_update(s->state, numbers, sizeof(numbers));
        snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
        for (char *p = s->name; *p; p++)
                if (*p == '\n')
                        *p = '?';
}

void cop_sums_data(struct cop_sums *s, uint64_t offset, const void *data, size_t n)
{
        if (n == 0)
                return;
        if (offset != s->at) { /* a hole ends here */
                XXH3_128bits_update(s->state, "hole", 4);
                XXH3_128bits_update(s->state, &offset, sizeof(offset));
        }
        XXH3_128bits_update(s->state, data, n);
        s->at = offset + n;
}

int cop_sums_end(struct cop_sums *s, struct cop_error *err)
{
        XXH128_hash_t hash = XXH3_128bits_digest(s->state);
        char line[LINE];

        int n = snprintf(line, sizeof(line), "%016llx%016llx %s\n", (unsigned long long)hash.high64,
                         (unsigned long long)hash.low64, s->name);
        int r = cop_write_all(s->fd, line, (size_t)n);
        if (r < 0)
                return cop_error_errno(err, r, "checksums");
        s->size += (uint64_t)n;
        return 0;
}

int cop_sums_list(const struct cop_sums *s, uint64_t *ret_size)
{
        *ret_size = s->size;
        return s->fd;
}

static int differs(struct cop_sums *s, struct cop_error *err)
{
        char line[2 * LINE + 1];
        uint64_t from = s->compared > LINE ? s->compared - LINE : 0;
        ssize_t n = pread(s->fd, line, sizeof(line) - 1, (off_t)from);
        char *at = line + (s->compared - from);

        line[MAX_OF(n, (ssize_t)0)] = '\0';
        if (n <= 0 || at >= line + n)
                return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                                     "the pack is damaged: its list of checksums names members that it does not have");
        while (at > line && at[-1] != '\n')
                at--;
        at[strcspn(at, "\n")] = '\0';
        const char *name = strchr(at, ' ');
        return cop_error_set(
                err, EBADMSG, COP_ERR_pack_damaged,
                "the pack is damaged: \"%s\" fails its checksum; copy the pack again, or pack the node again",
                name ? name + 1 : "?");
}

int cop_sums_compare(struct cop_sums *s, const void *data, size_t n, struct cop_error *err)
{
        const char *p = data;
        char own[4096];

        while (n > 0) {
                ssize_t have = pread(s->fd, own, MIN_OF(n, sizeof(own)), (off_t)s->compared);
                if (have <= 0)
                        return differs(s, err);
                for (ssize_t i = 0; i < have; i++, s->compared++)
                        if (own[i] != p[i])
                                return differs(s, err);
                p += have;
                n -= (size_t)have;
        }
        return 0;
}

int cop_sums_compared(const struct cop_sums *s, struct cop_error *err)
{
        return s->compared == s->size ? 0
                                      : cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                                                      "the pack is damaged: its list of checksums lacks members");
}
