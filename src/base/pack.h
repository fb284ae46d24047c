/* The contract between the daemon and coppice-pack (src/pack), which turns a node into a stream and back.
 *
 * The stream is one zstd frame around a pax archive.  Members, in this order:
 *
 *      manifest.json           the node's row, its image, what its memory needs of a machine
 *      keep, init              \
 *      ipc/…                    | a node of memory only
 *      mem/meta.img, pages-*    /
 *      layer/0/… layer/N-1/…   its layers, topmost first
 *      checksums               a line for each member before it, in order: xxh3 (128 bits) of all that is said of it, and its name
 *
 * A folder's own member comes after what is in it.
 *
 *      coppice-pack pack NODE LAYER…       descriptor 1 takes the stream; 4: the manifest
 *      coppice-pack unpack FOLDER          descriptor 0 gives the stream; 4: {"images": [digest…], "files_only": bool}
 *
 * Descriptor 3 takes a struct cop_error when it fails.  FOLDER is empty at the beginning; afterwards it holds manifest.json, the
 * first layer as `layer`, the others as below/1 … below/N-1, and, unless files_only, what a node of memory has; all is synced.
 */
#pragma once

#define COP_PACK_FORMAT 1
#define COP_PACK_FORMAT_KEY "coppice_pack"
#define COP_PACK_MANIFEST "manifest.json"
#define COP_PACK_MANIFEST_MAX (4u << 20)
#define COP_PACK_SUMS "checksums"
#define COP_PACK_NAME_MAX 4095  /* bytes of a name or link target */
#define COP_PACK_LAYERS_MAX 399 /* the image's own comes below them (sandbox/layers.h) */

enum cop_pack_fd {
        COP_PACK_ERROR_FD = 3,
        COP_PACK_SPEC_FD = 4,
};
