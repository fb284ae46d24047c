/* Theory of operation
 *
 * The manifest is the first member: what can be refused is refused before anything is written.  Then member after member is checked
 * (place.c says where it may lie), written (extract.c) and summed; the list of checksums comes last and must be the one that was
 * summed up here, to the byte.  So a pack that was cut at a border between members, or lost one, is told from a whole one.  Last the
 * memory is looked at as a whole (memory.c), and all of it is synced.
 */
#include "pack/read.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/pack.h"
#include "freezer/image.h"
#include "pack/extract.h"
#include "pack/memory.h"

#define MEMBERS_MAX 20000000

struct unpack {
        const struct cop_unpack_job *job;
        struct cop_extract to;
        struct cop_pack_stream *stream; /* owned */
        struct archive *archive;        /* borrowed from it */
        struct cop_sums *sums;          /* owned */
        json_t *manifest;               /* owned */
        size_t layers;
        uint64_t members;
        bool memory; /* it is taken */
        bool sums_seen;
};

static int damaged(const char *what, struct cop_error *err)
{
        return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged, "the pack is damaged: %s", what);
}

/* -- the manifest ------------------------------------------------------------------------------------------------------- */

static int check_image(struct unpack *u, struct cop_error *err)
{
        json_t *image = json_object_get(u->manifest, "image"), *have;
        const char *digest = json_string_value(json_object_get(image, "digest"));
        const char *name = json_string_value(json_object_get(image, "name"));
        size_t i;

        if (!digest)
                return damaged("its manifest names no image", err);
        json_array_foreach (u->job->images, i, have)
                if (strcmp(json_string_value(have), digest) == 0)
                        return 0;
        return cop_error_set(
                err, ENOENT, COP_ERR_image_not_found,
                "the pack stands on image \"%.100s\" with digest %.100s, which is not here; import exactly "
                "that one (coppice image import) and unpack again; coppice image ls --json shows the digests",
                name ? name : "?", digest);
}

static int check_host(struct unpack *u, struct cop_error *err)
{
        json_t *host = json_object_get(u->manifest, "host"), *words = json_object_get(host, "cpu_words"), *word;
        const char *kernel = json_string_value(json_object_get(host, "kernel"));
        struct img_header header = {0};
        size_t i;

        if (!kernel || strlen(kernel) >= sizeof(header.kernel) ||
            json_array_size(words) != ELEMENTSOF(header.cpu_words))
                return damaged("its manifest does not say which machine its memory is of", err);
        memcpy(header.kernel, kernel, strlen(kernel) + 1);
        json_array_foreach (words, i, word)
                header.cpu_words[i] = (uint32_t)json_integer_value(word);
        header.xfeatures = (uint64_t)json_integer_value(json_object_get(host, "xfeatures"));
        struct cop_error why;
        int r = cop_image_check_host(&header, &why);
        return r < 0 ? cop_error_set(err, EXDEV, COP_ERR_image_mismatch,
                                     "the pack's memory cannot run here: %.700s; unpack its files alone "
                                     "(coppice unpack --files-only)",
                                     why.message)
                     : 0;
}

static int check_manifest(struct unpack *u, struct cop_error *err)
{
        json_int_t format = json_integer_value(json_object_get(u->manifest, COP_PACK_FORMAT_KEY));
        const char *engine = json_string_value(json_object_get(u->manifest, "engine"));
        json_int_t layers = json_integer_value(json_object_get(u->manifest, "layers"));
        const char *kind = json_string_value(json_object_get(json_object_get(u->manifest, "node"), "kind"));

        if (format < 1)
                return damaged("this is no pack of Coppice", err);
        if (format > COP_PACK_FORMAT)
                return cop_error_set(
                        err, EPROTO, COP_ERR_unsupported,
                        "the pack has format %lld of Coppice %.40s, this one (%s) reads up to %d; unpack it with "
                        "that version or a newer one",
                        (long long)format, engine ? engine : "?", COPPICE_VERSION, COP_PACK_FORMAT);
        if (layers < 1 || layers > COP_PACK_LAYERS_MAX || !kind ||
            (strcmp(kind, "memory") != 0 && strcmp(kind, "files") != 0))
                return damaged("its manifest makes no sense", err);
        u->layers = (size_t)layers;
        u->memory = strcmp(kind, "memory") == 0 && !u->job->files_only;
        int r = check_image(u, err);
        return r == 0 && u->memory ? check_host(u, err) : r;
}

static int read_manifest(struct unpack *u, struct archive_entry *entry, struct cop_error *err)
{
        la_int64_t size = archive_entry_size(entry);

        if (archive_entry_filetype(entry) != AE_IFREG || size < 1 || size > COP_PACK_MANIFEST_MAX)
                return damaged("its manifest is no file, or too large", err);
        _cleanup_free_ char *text = malloc((size_t)size);
        if (!text)
                return cop_error_errno(err, ENOMEM, "unpacking");
        if (archive_read_data(u->archive, text, (size_t)size) != size)
                return cop_pack_stream_fail(u->stream, err);
        cop_sums_data(u->sums, 0, text, (size_t)size);
        struct cop_error why;
        if (cop_json_parse(text, (size_t)size, false, &u->manifest, &why) < 0)
                return damaged("its manifest is no JSON", err);
        int r = check_manifest(u, err);
        if (r < 0)
                return r;
        _cleanup_close_ int fd =
                openat(u->job->root_fd, COP_PACK_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        r = fd < 0 ? -errno : cop_write_all(fd, text, (size_t)size);
        return r < 0 ? cop_error_errno(err, r, "writing the manifest") : 0;
}

/* -- members ------------------------------------------------------------------------------------------------------------ */

static int read_sums(struct unpack *u, struct cop_error *err)
{
        char chunk[4096];
        la_ssize_t n;

        u->sums_seen = true;
        while ((n = archive_read_data(u->archive, chunk, sizeof(chunk))) > 0) {
                int r = cop_sums_compare(u->sums, chunk, (size_t)n, err);
                if (r < 0)
                        return r;
        }
        return n < 0 ? cop_pack_stream_fail(u->stream, err) : cop_sums_compared(u->sums, err);
}

static int read_member(struct unpack *u, struct archive_entry *entry, struct cop_error *err)
{
        struct cop_place place;
        int r = cop_place_of(archive_entry_pathname(entry), u->layers, &place, err);

        if (r < 0)
                return r;
        if ((u->members++ == 0) != (place.kind == COP_PLACE_MANIFEST))
                return damaged("its manifest is not the first member", err);
        if (u->members > MEMBERS_MAX)
                return cop_error_set(err, EFBIG, COP_ERR_payload_too_large, "the pack has more than %d members",
                                     MEMBERS_MAX);
        if (u->sums_seen)
                return damaged("members behind its list of checksums", err);
        if (place.kind == COP_PLACE_SUMS)
                return read_sums(u, err);
        cop_sums_begin(u->sums, entry);
        if (place.kind == COP_PLACE_MANIFEST)
                r = read_manifest(u, entry, err);
        else if (place.kind == COP_PLACE_LAYER || u->memory)
                r = cop_extract_member(&u->to, entry, &place, u->layers, err);
        else
                r = cop_extract_skip(&u->to, err);
        return r < 0 ? r : cop_sums_end(u->sums, err);
}

static int read_members(struct unpack *u, struct cop_error *err)
{
        struct archive_entry *entry;
        int status, r = 0;

        while (r == 0 && (status = archive_read_next_header(u->archive, &entry)) != ARCHIVE_EOF)
                r = status == ARCHIVE_OK ? read_member(u, entry, err) : cop_pack_stream_fail(u->stream, err);
        if (r == 0 && u->members == 0)
                r = damaged("it is empty", err);
        if (r == 0 && !u->sums_seen)
                r = damaged("its end is missing; copy it again", err);
        return r < 0 ? r : cop_pack_stream_ended(u->stream, err);
}

/* -- all of it --------------------------------------------------------------------------------------------------------- */

/* Every layer has its folder, and none is deeper than the manifest says. */
static int check_layers(struct unpack *u, struct cop_error *err)
{
        for (size_t i = 0; i < u->layers; i++) {
                struct stat st;
                char path[40];
                snprintf(path, sizeof(path), "below/%zu", i);
                if (fstatat(u->job->root_fd, i == 0 ? "layer" : path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                    !S_ISDIR(st.st_mode))
                        return damaged("it lacks a layer", err);
        }
        return 0;
}

/* What may be written: the disk is left a twentieth of its size, so that one pack cannot stop everything else. */
static uint64_t room_on_disk(int fd)
{
        struct statvfs st;

        if (fstatvfs(fd, &st) < 0)
                return UINT64_MAX;
        uint64_t spare = (uint64_t)st.f_blocks / 20;
        return st.f_bavail > spare ? ((uint64_t)st.f_bavail - spare) * st.f_frsize : 0;
}

int cop_pack_read(const struct cop_unpack_job *job, struct cop_error *err)
{
        struct unpack u = {.job = job, .to = {.root_fd = job->root_fd, .parent_fd = -EBADF}};

        int r = cop_sums_new(&u.sums, err);
        if (r == 0)
                r = cop_pack_stream_read(job->in_fd, &u.stream, &u.archive, err);
        if (r == 0) {
                u.to.stream = u.stream;
                u.to.archive = u.archive;
                u.to.sums = u.sums;
                u.to.room = room_on_disk(job->root_fd);
                r = read_members(&u, err);
        }
        if (r == 0)
                r = check_layers(&u, err);
        if (r == 0 && u.memory)
                r = cop_pack_check_memory(job->root_fd, err);
        if (r == 0 && syncfs(job->root_fd) < 0)
                r = cop_error_errno(err, errno, "syncing what was unpacked");
        cop_extract_done(&u.to);
        cop_sums_free(u.sums);
        cop_pack_stream_free(u.stream);
        json_decref(u.manifest);
        return r;
}
