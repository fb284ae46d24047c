#include "pack/place.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/pack.h"
#include "freezer/image.h"

#define COMPONENTS_MAX 450
#define COMPONENT_MAX 255

static int unsafe(const char *name, const char *why, struct cop_error *err)
{
        return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                             "the pack has a member \"%.200s\" that %s; it was not made by "
                             "Coppice, and nothing of it was kept",
                             name, why);
}

static bool parts_are_sound(const char *path)
{
        size_t count = 0;

        for (const char *p = path;;) {
                size_t n = strcspn(p, "/");
                if (n == 0 || n > COMPONENT_MAX || ++count > COMPONENTS_MAX || (n == 1 && p[0] == '.') ||
                    (n == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
                if (!p[n])
                        return true;
                p += n + 1;
        }
}

/* "N" or "N/…" with N below layers: what follows N, or NULL. */
static const char *layer_number(const char *p, size_t layers, size_t *ret)
{
        size_t n = strspn(p, "0123456789"), number = 0;

        if (n == 0 || n > 3 || (n > 1 && p[0] == '0') || (p[n] && p[n] != '/'))
                return NULL;
        for (size_t i = 0; i < n; i++)
                number = number * 10 + (size_t)(p[i] - '0');
        *ret = number;
        return number < layers ? p + n : NULL;
}

static bool place_in_layer(const char *rest, size_t layers, struct cop_place *ret)
{
        size_t number;
        const char *below = layer_number(rest, layers, &number);

        if (!below)
                return false;
        ret->kind = COP_PLACE_LAYER;
        ret->top = !*below;
        if (number == 0)
                snprintf(ret->path, sizeof(ret->path), "layer%s", below);
        else
                snprintf(ret->path, sizeof(ret->path), "below/%zu%s", number, below);
        return true;
}

static bool place_single(const char *name, struct cop_place *ret)
{
        static const struct {
                const char *name;
                enum cop_place_kind kind;
        } singles[] = {
                {COP_PACK_MANIFEST, COP_PLACE_MANIFEST}, {"keep", COP_PLACE_KEEP},        {"init", COP_PLACE_KEEP},
                {"mem/meta.img", COP_PLACE_MEMORY},      {COP_PACK_SUMS, COP_PLACE_SUMS},
        };

        for (size_t i = 0; i < ELEMENTSOF(singles); i++)
                if (strcmp(name, singles[i].name) == 0) {
                        ret->kind = singles[i].kind;
                        return true;
                }
        ret->kind = COP_PLACE_MEMORY;
        return strncmp(name, "mem/", 4) == 0 && cop_image_is_pages_name(name + 4);
}

int cop_place_of(const char *name, size_t layers, struct cop_place *ret, struct cop_error *err)
{
        size_t n = name ? strlen(name) : 0;
        char clean[COP_TAR_NAME_MAX + 1];

        if (n == 0 || n > COP_TAR_NAME_MAX)
                return unsafe(name ? name : "", n == 0 ? "has no name" : "has too long a name", err);
        memcpy(clean, name, n + 1);
        if (n > 1 && clean[n - 1] == '/') /* of a folder */
                clean[n - 1] = '\0';
        if (!parts_are_sound(clean))
                return unsafe(name, "would leave the node's folder", err);
        *ret = (struct cop_place){0};
        snprintf(ret->path, sizeof(ret->path), "%s", clean);
        if (place_single(clean, ret))
                return 0;
        if (strcmp(clean, "ipc") == 0 || strncmp(clean, "ipc/", 4) == 0) {
                ret->kind = COP_PLACE_IPC;
                ret->top = !clean[3];
                return 0;
        }
        if (strncmp(clean, "layer/", 6) == 0 && place_in_layer(clean + 6, layers, ret))
                return 0;
        return unsafe(name, "no node has", err);
}
