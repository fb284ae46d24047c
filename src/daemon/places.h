/* Where things are: the home folder, and the programs and recipes that belong to this build or installation. */
#pragma once

#include <limits.h>

#include "base/err.h"

struct cop_places {
        char home[PATH_MAX]; /* absolute; exists, mode 0700, after cop_places_find */
        char socket[PATH_MAX];
        char keeper[PATH_MAX]; /* $COPPICE_KEEPER, else coppice-keeper beside this program */
        char image_tool
                [PATH_MAX]; /* $COPPICE_IMAGE_TOOL, else libexec/coppice-image of the source tree or ../libexec/coppice/ */
        char recipes[PATH_MAX]; /* $COPPICE_RECIPES, else images/ of the source tree or ../share/coppice/images */
};

/* home and socket may be NULL (see coppiced --help). Missing programs are no error here: the call that needs one says so. */
int cop_places_find(const char *home, const char *socket, struct cop_places *ret, struct cop_error *err);

/* One daemon per home: takes HOME/lock, writes the pid into it and into HOME/coppiced.pid.  The descriptor, to be kept open;
 * -EWOULDBLOCK with in_use when another daemon has it. */
int cop_places_lock(const struct cop_places *places, struct cop_error *err);
