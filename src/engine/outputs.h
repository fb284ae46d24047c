/* What a cell's result keeps of its outputs: everything in order, each stream cut to a head and a tail with exact counts,
 * rich outputs bounded in number and bytes, displays updated and cleared as a notebook would.
 *
 * A stream's head is the first half of the cap, its tail the last half; what falls out between is counted, and an item
 * {"type":"truncated","stream","dropped"} stands at the gap.  Nothing is dropped without a trace.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "jupyter/kernel.h"

#define COP_OUTPUT_MAX_DEFAULT (1u << 20) /* bytes of a stream that a result keeps */
#define COP_OUTPUT_MAX_LEAST (1u << 10)
#define COP_OUTPUT_MAX_MOST (64u << 20)
#define COP_OUTPUT_RICH_ITEMS 1000        /* display and result items kept */
#define COP_OUTPUT_RICH_BYTES (32u << 20) /* their bytes in all */
#define COP_OUTPUT_MIME_BYTES (16u << 20) /* one representation; a larger one is left out and named in the metadata */

struct cop_outputs;

/* stream_max: COP_OUTPUT_MAX_LEAST … _MOST.  started: CLOCK_REALTIME from which time_ms counts.  NULL when out of memory. */
struct cop_outputs *cop_outputs_new(size_t stream_max, usec_t started);
struct cop_outputs *cop_outputs_free(struct cop_outputs *o); /* takes NULL */

/* Takes in one output and returns the event for the cell's record (owned by the caller; NULL when there is nothing to tell,
 * e.g. a figure that was shown already). */
json_t *cop_outputs_add(struct cop_outputs *o, const struct cop_output *out);

/* The kept items as the API's outputs array (owned by the caller). */
json_t *cop_outputs_items(struct cop_outputs *o);
/* {stdout?: {bytes, kept_head, kept_tail, dropped}, stderr?, outputs?: {count, dropped}}, or NULL when nothing was cut. */
json_t *cop_outputs_truncated(struct cop_outputs *o);

/* Puts stdout, stderr, results and outputs (stolen) into a Cell object. */
void cop_outputs_spread(json_t *cell, json_t *items);
/* One event of a record for an output, without keeping it (late output). */
json_t *cop_output_event(const struct cop_output *out, usec_t started);
