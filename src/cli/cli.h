/* The command line: one const struct per verb, in verb-NAME.c; main.c finds it, reads its options and calls it.
 *
 * A verb returns an exit status (enum below).  Failures of the API are left in cli->err and end in cop_cli_fail, which prints
 * them with the remedy.  What the user asked for goes to stdout, everything about it to stderr.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client.h"
#include "options.h"

enum cop_exit {
        COP_EXIT_OK = 0,
        COP_EXIT_ERROR = 1,     /* the cell raised an error; or the request failed */
        COP_EXIT_USAGE = 2,     /* the command line is wrong */
        COP_EXIT_NO_DAEMON = 3, /* no daemon runs and none could be started */
        COP_EXIT_TIMEOUT = 124, /* of a cell or a command, as timeout(1) */
        COP_EXIT_FAILED = 125,  /* exec: Coppice failed, not the command */
        COP_EXIT_LOST = 126,    /* the cell was cancelled, or its result is lost */
        COP_EXIT_INTERRUPTED = 130,
        COP_EXIT_DIED = 137, /* the kernel died, or ran out of memory */
};

struct cop_verb;

struct cop_cli {
        const struct cop_verb *verb;
        struct cop_client *client; /* owned, made by cop_cli_connect */
        bool out_tty, err_tty;
        bool out_colour, err_colour;
        size_t after_dashes; /* how many of the last arguments stood behind "--" */
        struct cop_error err;
};

struct cop_verb {
        const char *name;                 /* one word, or two: "context ls" */
        const char *args;                 /* as in the usage line */
        const char *summary;              /* one line, no full stop */
        const char *notes;                /* NULL, or paragraphs for `coppice help NAME` */
        const char *examples;             /* lines, each a command, perhaps with a # remark */
        const struct cop_option *options; /* ends with an empty one; NULL = none */
        size_t args_min, args_max;
        int (*run)(struct cop_cli *cli, size_t argc, char **argv);
        bool passes_options; /* everything after the verb goes to argv untouched */
};

extern const struct cop_verb *const cop_verbs[]; /* ends with NULL */

/* Makes the client of a daemon that runs; false when none does, without a word.  With COPPICE_URL it is only made, not tried. */
bool cop_cli_find(struct cop_cli *cli);
/* The same, starting a daemon when none runs; false after having printed why not. */
bool cop_cli_connect(struct cop_cli *cli);
/* Prints cli->err and its remedy; returns the exit status for it. */
int cop_cli_fail(struct cop_cli *cli);
/* Prints a fault of the command line and how to get help; returns COP_EXIT_USAGE. */
int cop_cli_usage(struct cop_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One remark on stderr: "coppice: …". */
void cop_cli_note(const struct cop_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The request, with "coppice: " printed and false on failure.  ret may be NULL. */
bool cop_cli_call(struct cop_cli *cli, const char *method, const char *path, json_t *body, json_t **ret);
/* Calls fn for every argument, also after one has failed; the status of the last that did, or COP_EXIT_OK. */
int cop_cli_each(struct cop_cli *cli, size_t argc, char **argv, int (*fn)(struct cop_cli *cli, const char *arg));
/* A path from a printf format whose %s arguments are percent-encoded.  NULL when out of memory. */
char *cop_cli_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
