/* From iopub messages to struct cop_output. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "jupyter/kernel.h"
#include "jupyter/message.h"

struct cop_decoded_output {
        struct cop_output output;
        json_t *content, *metadata; /* owned: what output borrows from */
        bool repaired;
};

void cop_decoded_output_done(struct cop_decoded_output *d);

/* Returns 1 and an output, 0 when the message is of a type that is no output (status, execute_input, comm_…, debug_event),
 * -EBADMSG when it is one but makes no sense.  The content frame of a stream message is decoded in place. */
int cop_output_decode(const struct cop_message *m, struct cop_decoded_output *ret, struct cop_error *err);

/* A new array of the strings in value (anything), for tracebacks.  NULL when out of memory. */
json_t *cop_output_traceback(json_t *value);
