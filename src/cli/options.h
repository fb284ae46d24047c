/* Options of a verb: a table that says where each value goes.
 *
 * --name VALUE, --name=VALUE, -n VALUE, -nVALUE, flags together (-fa); options and arguments in any order; -- ends the
 * options.  Lists may be given several times.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

enum cop_option_kind {
        COP_OPTION_END,
        COP_OPTION_FLAG,     /* bool */
        COP_OPTION_STRING,   /* const char *, borrowed from argv */
        COP_OPTION_LIST,     /* struct cop_list */
        COP_OPTION_DURATION, /* usec_t: 30, 1.5, 250ms, 10s, 5m, 2h */
        COP_OPTION_SIZE,     /* uint64_t bytes: 512M, 4G */
        COP_OPTION_NUMBER,   /* uint64_t */
};

#define COP_LIST_MAX 256
struct cop_list {
        const char *items[COP_LIST_MAX]; /* borrowed from argv */
        size_t count;
};

struct cop_option {
        const char *name; /* without -- */
        char letter;      /* 0 = none */
        enum cop_option_kind kind;
        void *to;          /* a static variable of the verb */
        const char *value; /* its name in the help; NULL for flags */
        const char *help;
};

/* --json, as every verb that lists or shows has it. */
#define COP_OPTION_JSON(flag)                                                            \
        {                                                                                \
                .name = "json", .kind = COP_OPTION_FLAG, .to = (flag), .help = "as JSON" \
        }

/* Moves the arguments to the front of argv and returns their number; *ret_after is how many of them stood behind "--".
 * -EINVAL with a message for the user in err. */
int cop_options_parse(const struct cop_option *options, int argc, char **argv, size_t *ret_after,
                      struct cop_error *err);
