/* Nodes: FREEZE, and START with THAW (sandbox/wire.h "Nodes"). */
#pragma once

#include "keeper/keep.h"

struct cop_sandbox_spec;

/* Answers when the node is complete.  While requests are under way at init it waits for them, at most 10 s. */
void cop_keep_freeze(struct cop_keep *k, struct cop_msg *m);
/* In place of starting an init: fills the ipc folder, thaws the node's memory into a new sandbox and takes its commands over.
 * spec.hold must be set.  On failure nothing is left. */
int cop_keep_thaw(struct cop_keep *k, const struct cop_sandbox_spec *spec, const char *node, bool fork, struct cop_error *err);
/* Adds what FREEZE answers; for the reply of a freeze that ends the sandbox. */
void cop_keep_add_frozen(struct cop_keep *k, struct cop_msg *reply);
/* The tree is gone: its tracker and watch go; a FREEZE that waits is answered by its own timer. */
void cop_keep_memory_done(struct cop_keep *k);
