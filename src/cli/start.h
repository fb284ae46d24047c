/* Where the daemon is, and starting one when none runs. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define COP_HOME_PATH_MAX 4096

struct cop_place {
        char home[COP_HOME_PATH_MAX];   /* COPPICE_HOME, absolute */
        char socket[COP_HOME_PATH_MAX]; /* its Unix socket */
        char log[COP_HOME_PATH_MAX];    /* what a daemon started by us says */
};

/* From COPPICE_HOME, or /var/lib/coppice as root and ~/.local/share/coppice otherwise. */
int cop_place_find(struct cop_place *ret, struct cop_error *err);
/* Whether somebody listens on the socket. */
bool cop_place_answers(const struct cop_place *place);
/* The path of coppiced: $COPPICE_DAEMON, beside this program, in ../libexec, or in PATH. */
int cop_daemon_path(char *ret, size_t n, struct cop_error *err);
/* Starts coppiced in the background and returns when it is ready, or says why it is not with the end of its log.  Of several
 * callers at once, one starts it and the others wait. */
int cop_daemon_start(const struct cop_place *place, struct cop_error *err);
