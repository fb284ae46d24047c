/* Programs of our own that run inside a kernel: they are sent as a cell, with names of their own, and answer with one display.  The
 * kernel is the sandbox's, so the answer is foreign; callers check every field of it. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/err.h"

struct cop_engine;

extern const char cop_inside_take[], cop_inside_variables[]; /* inside/NAME.py */
extern const size_t cop_inside_take_len, cop_inside_variables_len;

struct cop_inside_params {
        const char *context; /* NULL = "default" */
        const char *program;
        size_t program_len;
        const char *title; /* one line: what the cell is called where cells are listed */
        json_t *request;   /* borrowed: what the program finds as `request` */
        usec_t timeout;
        bool taken; /* as in struct cop_cell_params */
};

/* Whether that context (NULL = "default") of a sandbox that runs is Python's. */
int cop_inside_check(struct cop_engine *e, const char *sandbox_id, const char *context, struct cop_error *err);

/* fn gets the answer (an object, borrowed) or the error: no kernel of Python, the memory was lost, the program failed.  Once, from the
 * loop or before this returns, never from within the end of a cell: it may end the sandbox. */
typedef void (*cop_inside_fn)(json_t *answer, const struct cop_error *err, void *userdata);
void cop_inside_run(struct cop_engine *e, const char *sandbox_id, const struct cop_inside_params *p, cop_inside_fn fn,
                    void *userdata);
