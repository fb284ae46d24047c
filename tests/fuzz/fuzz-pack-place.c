/* Names of a pack's members: whatever passes lies below the folder, by its text alone. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "pack/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void check_path(const char *path)
{
        require(path[0] && path[0] != '/' && path[strlen(path) - 1] != '/');
        for (const char *p = path; p; p = strchr(p, '/')) {
                p += *p == '/';
                size_t n = strcspn(p, "/");
                require(n > 0 && n <= 255 && !(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.'));
        }
}

/* What a member of this kind may touch. */
static void check_kind(const struct cop_place *place)
{
        static const char *const trees[] = {"layer", "below", "ipc",           "mem",
                                            "keep",  "init",  "manifest.json", "checksums"};
        size_t first = strcspn(place->path, "/");
        bool known = false;

        for (size_t i = 0; i < ELEMENTSOF(trees); i++)
                known |= strlen(trees[i]) == first && memcmp(trees[i], place->path, first) == 0;
        require(known);
        require(strcmp(place->path, "below") != 0 && strcmp(place->path, "mem") != 0);
        require((strncmp(place->path, "layer", first) == 0 || strncmp(place->path, "below", first) == 0) ==
                (place->kind == COP_PLACE_LAYER));
        require(!place->top || place->kind == COP_PLACE_LAYER || place->kind == COP_PLACE_IPC);
}

/* The first byte says how many layers there are, the rest is a name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cop_place place;
        struct cop_error err;

        if (size < 1)
                return 0;
        _cleanup_free_ char *name = malloc(size);
        require(name != NULL);
        memcpy(name, data + 1, size - 1);
        name[size - 1] = '\0';
        if (cop_place_of(name, data[0], &place, &err) < 0) {
                require(err.code == COP_ERR_pack_damaged);
                return 0;
        }
        check_path(place.path);
        check_kind(&place);
        return 0;
}
