/* Kernelspecs: which kernels an image has. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum cop_interrupt_mode {
        COP_INTERRUPT_SIGNAL,  /* SIGINT to the kernel's process group */
        COP_INTERRUPT_MESSAGE, /* interrupt_request on control */
};

struct cop_kernelspec {
        char *name;         /* [A-Za-z0-9._-]{1,100} */
        char *display_name; /* never NULL */
        char *language;     /* never NULL; lower case as in the spec */
        char *resource_dir; /* inside the image; NULL = unknown */
        char **argv;        /* NULL-terminated, at least one */
        char **env;         /* NULL-terminated NAME=value */
        enum cop_interrupt_mode interrupt_mode;
};

struct cop_kernelspecs {
        struct cop_kernelspec *list; /* owned */
        size_t count;
};

void cop_kernelspecs_done(struct cop_kernelspecs *s);

/* From image.json's "kernelspecs": [{"name", "argv", "display_name", "language", "interrupt_mode", "env"}].  Entries that
 * make no sense are left out (the image may be a stranger's); at most 100. */
int cop_kernelspecs_from_json(json_t *array, struct cop_kernelspecs *ret, struct cop_error *err);

/* From a folder of folders with a kernel.json, as /usr/share/jupyter/kernels, opened beneath without following links. */
int cop_kernelspecs_from_dir(int dir_fd, struct cop_kernelspecs *ret, struct cop_error *err);

/* By name; else, when name is a language ("python", "r"), the first kernel of that language.  NULL = none. */
const struct cop_kernelspec *cop_kernelspecs_find(const struct cop_kernelspecs *s, const char *name);

/* True when argv is `<some python> … -m ipykernel_launcher …`. */
bool cop_kernelspec_is_ipykernel(const struct cop_kernelspec *spec);
