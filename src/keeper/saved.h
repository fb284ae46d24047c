/* What freeze (node.c) and thaw (thaw.c) share: the file `keep` of a node, and the descriptors that lead out of a tree. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "freezer/freezer.h"
#include "keeper/command.h"

#define COP_NODE_CONTROL "control"
#define COP_NODE_INIT "init" /* also the name of the copy of init's program in a node */

struct cop_saved_command {
        char key[64];
        int64_t pid;
        uint32_t flags; /* COP_ENTRY_* */
        uint32_t status;
        uint32_t forgotten, open; /* open: bit i = stream i is not at its end */
        uint64_t started, ended, bytes[2];
        uint64_t log_size, log_room, log_dropped, log_mark;
        uint64_t timeout_left; /* 0 = none */
};

/* Everything about the commands, as `keep` has it. */
int cop_saved_write(const struct cop_keep *k, struct cop_buf *ret, struct cop_error *err);
/* ret: malloc'd list of *ret_count, checked. */
int cop_saved_read(int node_fd, struct cop_saved_command **ret, size_t *ret_count, struct cop_error *err);

struct cop_externals {
        struct cop_external *list;
        char (*names)[32];
        size_t count, room;
};

int cop_externals_init(struct cop_externals *x, size_t commands, struct cop_error *err);
/* Closes the descriptors in it too. */
void cop_externals_done(struct cop_externals *x);
struct cop_external *cop_externals_add(struct cop_externals *x, const char *name);
/* Commands go by their place in `keep`: keys are longer than the freezer's names, and a forgotten one may have another's key. */
struct cop_external *cop_externals_add_output(struct cop_externals *x, size_t command, unsigned stream);
