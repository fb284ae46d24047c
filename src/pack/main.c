/* coppice-pack: a node as a stream, and back (base/pack.h).  A child of the daemon. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/pack.h"
#include "pack/confine.h"
#include "pack/read.h"
#include "pack/write.h"

static int open_folder(const char *path, int *ret, struct cop_error *err)
{
        *ret = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return *ret < 0 ? cop_error_errno(err, errno, "opening %s", path) : 0;
}

static int read_spec(char **ret, struct cop_error *err)
{
        char path[40];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", COP_PACK_SPEC_FD);
        return cop_read_file(AT_FDCWD, path, COP_PACK_MANIFEST_MAX, ret, NULL, err);
}

static int pack(const char *node, char **layers, size_t count, struct cop_error *err)
{
        _cleanup_free_ int *fds = calloc(count, sizeof(*fds));
        _cleanup_free_ char *manifest = NULL;
        _cleanup_close_ int node_fd = -EBADF;
        struct stat st;

        int r = fds ? read_spec(&manifest, err) : cop_error_errno(err, ENOMEM, "packing");
        if (r == 0)
                r = open_folder(node, &node_fd, err);
        for (size_t i = 0; r == 0 && i < count; i++)
                r = open_folder(layers[i], &fds[i], err);
        if (r == 0)
                r = cop_confine(node_fd, false, err);
        if (r < 0)
                return r;
        const struct cop_pack_job job = {.node_fd = node_fd,
                                         .layer_fds = fds,
                                         .layers = count,
                                         .manifest = manifest,
                                         .memory = fstatat(node_fd, "mem", &st, AT_SYMLINK_NOFOLLOW) == 0,
                                         .out_fd = STDOUT_FILENO};
        return cop_pack_write(&job, err);
}

static int unpack(const char *folder, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        _cleanup_json_ json_t *spec = NULL;
        _cleanup_close_ int root_fd = -EBADF;

        int r = read_spec(&text, err);
        if (r == 0)
                r = cop_json_parse(text, strlen(text), false, &spec, err);
        if (r == 0)
                r = open_folder(folder, &root_fd, err);
        if (r == 0)
                r = cop_confine(root_fd, true, err);
        if (r < 0)
                return r;
        const struct cop_unpack_job job = {.in_fd = STDIN_FILENO,
                                           .root_fd = root_fd,
                                           .images = json_object_get(spec, "images"),
                                           .files_only = json_is_true(json_object_get(spec, "files_only"))};
        return cop_pack_read(&job, err);
}

int main(int argc, char **argv)
{
        struct cop_error err = COP_ERROR_NULL;
        int r;

        umask(0077);
        if (argc >= 4 && argc - 3 <= COP_PACK_LAYERS_MAX && strcmp(argv[1], "pack") == 0) {
                r = pack(argv[2], argv + 3, (size_t)argc - 3, &err);
        } else if (argc == 3 && strcmp(argv[1], "unpack") == 0) {
                r = unpack(argv[2], &err);
        } else {
                fputs("coppice-pack is started by coppiced; use coppice pack and coppice unpack.\n", stderr);
                return 2;
        }
        if (r < 0 && write(COP_PACK_ERROR_FD, &err, sizeof(err)) != sizeof(err))
                fprintf(stderr, "coppice-pack: %s\n", err.message);
        return r < 0;
}
