/* Theory of operation
 *
 * Files.  The trees are immutable (N3) but were written by a sandbox: each folder is opened beneath the one before without following
 * links, and what is no file is told by its attributes only.  Files with several names are packed once for each layer and
 * are links after that.  Sockets are left out: a file of that kind says nothing without its process, and a thaw binds it anew.
 *
 * Memory.  An incremental image has the page files of its ancestors as hard links in its own folder, so the folder is complete;
 * but of an ancestor's file it needs only some pages.  What no extent refers to becomes a hole: the pack holds exactly the pages of
 * this node, and none that an ancestor had and this one has not any more.
 */
#include "pack/write.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/pack.h"
#include "freezer/image.h"
#include "pack/members.h"

#define DEPTH_MAX 420 /* keeper/capture.c saves at most 400 */
#define LINKS_MAX 1000000

struct link { /* a file that has several names, and its first one */
        uint64_t ino;
        char name[];
};

struct walk {
        struct cop_pack_output *out;
        void *links; /* tree of struct link */
        size_t link_count;
        char name[COP_PACK_NAME_MAX + 2]; /* of the member */
        size_t length;
};

static int by_ino(const void *a, const void *b)
{
        const struct link *x = a, *y = b;

        return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* The name that was packed before; NULL: this is the first, and it is remembered. */
static const char *first_name(struct walk *w, const struct stat *st)
{
        struct link *key = calloc(1, sizeof(*key) + w->length + 1), **found;

        if (!key)
                return NULL;
        key->ino = st->st_ino;
        memcpy(key->name, w->name, w->length + 1);
        found = w->link_count < LINKS_MAX ? tsearch(key, &w->links, by_ino) : tfind(key, &w->links, by_ino);
        if (found && *found != key) {
                free(key);
                return (*found)->name;
        }
        if (found)
                w->link_count++;
        else
                free(key);
        return NULL;
}

static int push_name(struct walk *w, const char *base, struct cop_error *err)
{
        size_t n = strlen(base);

        if (w->length + 1 + n > COP_PACK_NAME_MAX)
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_unsupported,
                                     "a file of the node has a path of more than %d bytes (%.100s…), too long for a "
                                     "pack; move it nearer to the root and take another snapshot",
                                     COP_PACK_NAME_MAX, w->name);
        if (w->length)
                w->name[w->length++] = '/';
        memcpy(w->name + w->length, base, n + 1);
        w->length += n;
        return 0;
}

static int add_folder(struct walk *w, int fd, const struct stat *st, int depth, struct cop_error *err);

static int add_regular(struct walk *w, int dir_fd, const char *base, const struct stat *st, struct cop_error *err)
{
        _cleanup_close_ int fd = openat(dir_fd, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        return fd < 0 ? cop_error_errno(err, errno, "opening %.200s", w->name)
                      : cop_pack_add_file(w->out, w->name, fd, NULL, err);
}

static int add_one(struct walk *w, int dir_fd, const char *base, int depth, struct cop_error *err)
{
        struct stat st;

        if (fstatat(dir_fd, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return cop_error_errno(err, errno, "%.200s", w->name);
        if (S_ISDIR(st.st_mode)) {
                _cleanup_close_ int fd = openat(dir_fd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                return fd < 0 ? cop_error_errno(err, errno, "opening %.200s", w->name)
                              : add_folder(w, fd, &st, depth + 1, err);
        }
        if (S_ISSOCK(st.st_mode))
                return 0;
        const char *first = st.st_nlink > 1 ? first_name(w, &st) : NULL;
        if (first)
                return cop_pack_add_hardlink(w->out, w->name, first, &st, err);
        if (S_ISREG(st.st_mode))
                return add_regular(w, dir_fd, base, &st, err);
        return cop_pack_add_node(w->out, w->name, dir_fd, base, &st, err);
}

static int add_folder(struct walk *w, int fd, const struct stat *st, int depth, struct cop_error *err)
{
        int copy = depth > DEPTH_MAX ? -ELOOP : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        int r = 0;

        if (!dir) {
                cop_close(copy);
                return cop_error_errno(err, copy == -ELOOP ? ELOOP : errno, "opening %.200s", w->name);
        }
        while (r == 0 && (errno = 0, entry = readdir(dir))) {
                size_t before = w->length;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                r = push_name(w, entry->d_name, err);
                if (r == 0)
                        r = add_one(w, fd, entry->d_name, depth, err);
                w->name[w->length = before] = '\0';
        }
        if (r == 0 && errno)
                r = cop_error_errno(err, errno, "reading %.200s", w->name);
        return r < 0 ? r : cop_pack_add_node(w->out, w->name, fd, NULL, st, err);
}

static int add_tree(struct cop_pack_output *out, int fd, const char *name, struct cop_error *err)
{
        _cleanup_free_ struct walk *w = calloc(1, sizeof(*w));
        struct stat st;

        if (!w || fstat(fd, &st) < 0)
                return cop_error_errno(err, w ? errno : ENOMEM, "%s", name);
        w->out = out;
        int r = push_name(w, name, err);
        if (r == 0)
                r = add_folder(w, fd, &st, 0, err);
        tdestroy(w->links, free);
        return r;
}

/* -- memory ------------------------------------------------------------------------------------------------------------ */

static int ranges_of(const struct cop_image *image, uint32_t source, struct cop_ranges *ret, struct cop_error *err)
{
        uint32_t extents = image->count[IMG_EXTENTS];

        *ret = (struct cop_ranges){.list = calloc((size_t)extents + 1, sizeof(*ret->list))};
        if (!ret->list)
                return cop_error_errno(err, ENOMEM, "packing the memory");
        for (uint32_t i = 0; i < extents; i++) {
                const struct img_extent *e = IMG_RECORD(image, IMG_EXTENTS, img_extent, i);
                if (e->source == source && e->pages > 0)
                        ret->list[ret->count++] = (struct cop_range){e->offset, (uint64_t)e->pages * IMG_PAGE};
        }
        return 0;
}

static int add_pages(struct cop_pack_output *out, const struct cop_image *image, struct cop_error *err)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < image->count[IMG_SOURCES]; i++) {
                const struct img_source *source = IMG_RECORD(image, IMG_SOURCES, img_source, i);
                _cleanup_(cop_ranges_done) struct cop_ranges ranges = {0};
                char base[IMG_PAGES_NAME_MAX], name[sizeof("mem/") + sizeof(base)];
                cop_image_pages_name(source->id, base);
                snprintf(name, sizeof(name), "mem/%s", base);
                r = ranges_of(image, i, &ranges, err);
                if (r == 0)
                        r = cop_pack_add_file(out, name, image->source_fds[i], &ranges, err);
        }
        return r;
}

static int add_named(struct cop_pack_output *out, int dir_fd, const char *base, const char *name, struct cop_error *err)
{
        _cleanup_close_ int fd = openat(dir_fd, base, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

        return fd < 0 ? cop_error_errno(err, errno, "opening the node's %s", base)
                      : cop_pack_add_file(out, name, fd, NULL, err);
}

static int add_memory(struct cop_pack_output *out, const struct cop_pack_job *job, int mem_fd,
                      const struct cop_image *image, struct cop_error *err)
{
        int r = add_named(out, job->node_fd, "keep", "keep", err);

        if (r == 0)
                r = add_named(out, job->node_fd, "init", "init", err);
        _cleanup_close_ int ipc = openat(job->node_fd, "ipc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (r == 0 && ipc >= 0)
                r = add_tree(out, ipc, "ipc", err);
        if (r == 0)
                r = add_named(out, mem_fd, "meta.img", "mem/meta.img", err);
        return r < 0 ? r : add_pages(out, image, err);
}

/* -- all of it --------------------------------------------------------------------------------------------------------- */

/* What the memory needs of a machine, so that another one can refuse before it has read everything. */
static int add_manifest(struct cop_pack_output *out, const struct cop_pack_job *job, const struct cop_image *image,
                        struct cop_error *err)
{
        _cleanup_json_ json_t *manifest = json_loads(job->manifest, 0, NULL);
        json_t *words = json_array();

        if (!json_is_object(manifest)) {
                json_decref(words);
                return cop_error_set(err, EINVAL, COP_ERR_internal, "the manifest is no object");
        }
        for (size_t i = 0; image && i < ELEMENTSOF(image->header->cpu_words); i++)
                json_array_append_new(words, json_integer(image->header->cpu_words[i]));
        if (image)
                json_object_set_new(manifest, "host",
                                    json_pack("{s:s, s:O, s:I}", "kernel", image->header->kernel, "cpu_words", words,
                                              "xfeatures", (json_int_t)image->header->xfeatures));
        json_decref(words);
        _cleanup_free_ char *text = json_dumps(manifest, JSON_INDENT(1));
        if (!text || strlen(text) > COP_PACK_MANIFEST_MAX)
                return cop_error_set(err, EFBIG, COP_ERR_unsupported, "the node's row is too large for a pack");
        return cop_pack_add_text(out, COP_PACK_MANIFEST, text, strlen(text), err);
}

static int add_layers(struct cop_pack_output *out, const struct cop_pack_job *job, struct cop_error *err)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < job->layers; i++) {
                char name[40];
                snprintf(name, sizeof(name), "layer/%zu", i);
                r = add_tree(out, job->layer_fds[i], name, err);
        }
        return r;
}

COP_DEFINE_CLEANUP(struct cop_image *, cop_image_free);

int cop_pack_write(const struct cop_pack_job *job, struct cop_error *err)
{
        _cleanup_(cop_pack_output_done) struct cop_pack_output out = {0};
        _cleanup_(cop_image_freep) struct cop_image *image = NULL;
        _cleanup_close_ int mem_fd = -EBADF;

        if (job->memory) {
                mem_fd = openat(job->node_fd, "mem", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                int r = mem_fd < 0 ? cop_error_errno(err, errno, "opening the node's memory")
                                   : cop_image_open(mem_fd, false, &image, err);
                if (r < 0)
                        return r;
        }
        int r = cop_pack_output_open(&out, job->out_fd, err);
        if (r == 0)
                r = add_manifest(&out, job, image, err);
        if (r == 0 && image)
                r = add_memory(&out, job, mem_fd, image, err);
        if (r == 0)
                r = add_layers(&out, job, err);
        if (r == 0)
                r = cop_pack_add_sums(&out, err);
        return r < 0 ? r : cop_pack_stream_finish(out.stream, err);
}
