/* Nodes: FREEZE, and START with THAW (sandbox/wire.h "Nodes"). */
#pragma once

#include "keeper/keep.h"

struct cop_freeze_room;
struct cop_sandbox_spec;

/* Answers when the node is complete.  While requests are under way at init it waits for them, at most 10 s. */
void cop_keep_freeze(struct cop_keep *k, struct cop_msg *m);
void cop_keep_still(struct cop_keep *k, struct cop_msg *m);
/* In place of starting an init: fills the ipc folder, thaws the node's memory into a new sandbox and takes its commands over.
 * spec.hold must be set.  On failure nothing is left. */
int cop_keep_thaw(struct cop_keep *k, const struct cop_sandbox_spec *spec, const char *node, unsigned flags,
                  struct cop_error *err);
/* The same when what follows the thaw failed: the tree goes. */
void cop_keep_thaw_undo(struct cop_keep *k);
/* Adds what FREEZE answers; for the reply of a freeze that ends the sandbox. */
void cop_keep_add_frozen(struct cop_keep *k, struct cop_msg *reply);
/* A FREEZE under way is answered: with an error that says why, or, when only the sync is left, after that. */
void cop_keep_node_abort(struct cop_keep *k, const char *why);
void cop_keep_node_done(struct cop_keep *k);

/* rest.c: a node is made, with so many pages of its own, and the tree runs on. */
void cop_keep_rest(struct cop_keep *k, int node_fd, uint64_t pages);
/* What has been made of it by now, the caller's; NULL = nothing.  No more is made. */
struct cop_freeze_room *cop_keep_rest_room(struct cop_keep *k);
bool cop_keep_is_still(struct cop_keep *k, int mem_fd); /* mem_fd: the memory of the last node, or -EBADF */
/* Made and served from the first call on; NULL when that fails: limits then begin anew. */
struct cop_waits *cop_keep_waits(struct cop_keep *k);
/* The tree is gone: its tracker, watch and waits go. */
void cop_keep_memory_done(struct cop_keep *k);
void cop_keep_watch_done(struct cop_keep *k);

/* sync.c: what a lazy node consists of goes to disk some time later, and the node says so then.  Does not wait; what goes wrong is logged. */
void cop_keep_sync_later(struct cop_keep *k, int node_fd);
/* The process that does it: takes folders of nodes from a socket until that ends.  The exit status. */
int cop_keep_sync_main(int from);

/* Opens a folder for reading. */
int cop_node_folder(int at_fd, const char *path, int *ret, struct cop_error *err);
