/* Reading a state without touching it: which node it is, and hidden copies of a node to look into.
 *
 * A copy is a sandbox that no listing shows and no event names, made from a node as a fork is, without a name, environment or new
 * random numbers.  It is marked in its policy, so that the next daemon ends one whose reader is gone; COPY_TTL ends it in any case.
 */
#pragma once

#include "engine/node.h"

#define COP_COPIES_MAX 16 /* at a time; too_many */

/* States are asked for by reference: a sandbox (id or name), else a node (id or name of a snapshot).
 *
 * A running sandbox becomes a node first, as fork does it (files_only: of its files alone); of one that sleeps the head is taken, and
 * it sleeps on.  row is borrowed; the node is held until cop_state_let_go(held), which also gives back a node that the new one
 * replaced as the head, when that had only served a reader.  fn is called once, not when the engine is freed. */
struct cop_state_hold;
typedef void (*cop_state_fn)(struct cop_node_row *row, struct cop_state_hold *held /* owned by who gets it */,
                             const struct cop_error *err, void *userdata);
void cop_state_find(struct cop_engine *e, const char *ref, bool files_only, cop_state_fn fn, void *userdata);
void cop_state_let_go(struct cop_state_hold *held); /* takes NULL */
/* Whether the variables of a context (NULL = "default") can be read in a copy of this node; *ret_empty: there are none, because no kernel
 * was ready.  invalid_state, context_not_found. */
int cop_state_check_context(const struct cop_node_row *row, const char *context, bool *ret_empty,
                            struct cop_error *err);

/* fn gets the id of the running copy, to be given to cop_copy_drop.  files_only: nothing is thawed. */
typedef void (*cop_copy_fn)(const char *id, const struct cop_error *err, void *userdata);
void cop_copy_make(struct cop_engine *e, const char *node, bool files_only, cop_copy_fn fn, void *userdata);
void cop_copy_drop(struct cop_engine *e, const char *id); /* "" and what has ended are fine */
