/* Where things are: the home folder, and the programs and recipes that belong to this build or installation. */
#pragma once

#include <limits.h>

#include "base/err.h"

struct cop_places {
        char home[PATH_MAX]; /* absolute; exists, mode 0700, after cop_places_find */
        char socket[PATH_MAX];
        /* $COPPICE_KEEPER, else coppice-keeper beside this program or in ../libexec/coppice */
        char keeper[PATH_MAX];
        /* $COPPICE_PACK, else coppice-pack beside it */
        char pack[PATH_MAX];
        char compare[PATH_MAX]; /* coppice-compare, the same way, $COPPICE_COMPARE */
        /* $COPPICE_IMAGE_TOOL, else coppice-image in ../libexec/coppice, or in libexec of the build or source tree */
        char image_tool[PATH_MAX];
        /* $COPPICE_RECIPES, else ../share/coppice/images, or images of the build or source tree */
        char recipes[PATH_MAX];
};

/* home and socket may be NULL (see coppiced --help). Missing programs are no error here: the call that needs one says so. */
int cop_places_find(const char *home, const char *socket, struct cop_places *ret, struct cop_error *err);

/* One daemon per home: takes HOME/lock, writes the pid into it and into HOME/coppiced.pid.  The descriptor, to be kept open;
 * -EWOULDBLOCK with in_use when another daemon has it. */
int cop_places_lock(const struct cop_places *places, struct cop_error *err);
