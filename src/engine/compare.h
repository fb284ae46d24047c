/* The files of two nodes, compared by coppice-compare: a child without rights but that to read (src/compare/main.c). */
#pragma once

#include "engine/node.h"

/* Both are held (cop_state_find) until fn was called.  fn gets {changes: [...], total, truncated, unread, unopened, left_out} (borrowed) or the error.  Exactly once, from the loop or before
 * this returns; not when the engine is freed meanwhile. */
typedef void (*cop_comparison_fn)(json_t *files, const struct cop_error *err, void *userdata);
void cop_compare_nodes(struct cop_engine *e, const struct cop_node_row *a, const struct cop_node_row *b, bool text,
                       cop_comparison_fn fn, void *userdata);
void cop_comparisons_drop(struct cop_engine *e); /* at shutdown */
