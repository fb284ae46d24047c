/* Where a member of a pack belongs: the one place that decides which names are safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/tar.h"

enum cop_place_kind {
        COP_PLACE_MANIFEST,
        COP_PLACE_KEEP,   /* keep, init: files */
        COP_PLACE_IPC,    /* a tree */
        COP_PLACE_MEMORY, /* files of the image */
        COP_PLACE_LAYER,  /* a tree */
        COP_PLACE_SUMS,
};

struct cop_place {
        enum cop_place_kind kind;
        bool top;                         /* the tree's own folder */
        char path[COP_TAR_NAME_MAX + 41]; /* below the target; never empty, no empty part, no "." or ".." */
};

/* layers: how many the manifest tells.  pack_damaged when the name is none that a pack can have. */
int cop_place_of(const char *name, size_t layers, struct cop_place *ret, struct cop_error *err);
