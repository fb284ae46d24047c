/* Outputs of cells as notebooks of format 4.5 have them. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* The displays of a notebook that later cells changed: an update belongs where the display stands. */
struct cop_nbformat_displays {
        json_t *shown;   /* owned: the ids that were shown so far */
        json_t *updates; /* owned: id -> {data, metadata, seq} of the last update of one that was shown */
        size_t bytes;    /* of both, at most COP_NBFORMAT_DISPLAYS_MAX: an update beyond stays where it came */
};
#define COP_NBFORMAT_DISPLAYS_MAX (64u << 20)

/* -ENOMEM */
int cop_nbformat_displays_init(struct cop_nbformat_displays *d);
void cop_nbformat_displays_done(struct cop_nbformat_displays *d);
/* Takes note of one cell's outputs (as outputs.c keeps them); cells come in the order of the notebook, with growing seq. */
void cop_nbformat_displays_note(struct cop_nbformat_displays *d, json_t *items, int64_t seq);

/* The outputs of the cell with this number, after all cells were noted.  error: the cell's {name, value, traceback}, added when no
 * output tells it; may be NULL. */
json_t *cop_nbformat_outputs(const struct cop_nbformat_displays *d, json_t *items, int64_t seq, json_t *error,
                             int64_t execution_count);
