/* Packs: pack.c (the child and the streams), pack-row.c (what is in the manifest). */
#pragma once

#include "engine/node.h"

void cop_packs_drop(struct cop_engine *e); /* at shutdown */

/* The manifest of a node, and the host paths of its layers as a NULL-terminated array (owned strings). */
int cop_pack_describe(struct cop_engine *e, const struct cop_node_row *row, char **ret_manifest, char ***ret_layers,
                      struct cop_error *err);
char **cop_pack_layers_free(char **layers);
/* What the unpacker must know: {images, files_only}. */
char *cop_unpack_spec(struct cop_engine *e, bool files_only);
/* nodes/<id>, unpacked and synced, becomes a node, and its lower layers nodes of their own.  On failure all folders but nodes/<id>
 * are gone.  name NULL: the one it had, when that is free. */
int cop_unpack_commit(struct cop_engine *e, const char *id, const char *name, bool files_only,
                      struct cop_node_row **ret, struct cop_error *err);
