/* The root filesystem of a sandbox: idmapped layers below an overlay.
 *
 * Files on disk carry the sandbox's own ids (0-65535).  The keeper, which has the rights, clones each layer's folder as a
 * detached mount and maps its ids with the sandbox's user namespace; the first process of the sandbox, which owns that
 * namespace, puts the detached mounts into its mount tree and mounts the overlay.  (Mounted from outside, the overlay would
 * act as a host uid that has no mapping on the layers: EOVERFLOW.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define COP_LAYERS_MAX 400 /* overlayfs allows 500 lower layers; the option string has one page */

struct cop_layers {
        int *lower_fds; /* owned array of owned detached mounts, topmost first */
        size_t lower_count;
        int upper_fd; /* owned; the folder that holds upper/ and work/ */
};
#define COP_LAYERS_NULL ((struct cop_layers){.upper_fd = -EBADF})

/* A detached, private mount of the folder or file `path` with these MOUNT_ATTR_* flags.  Returns the descriptor. */
int cop_mount_clone(const char *path, uint64_t flags, struct cop_error *err);
/* Maps the ids of a detached mount that nothing has used yet; `what` names it in errors. */
int cop_mount_idmap(int mnt_fd, int userns_fd, const char *what, struct cop_error *err);

/* Clones all layers, ids not yet mapped; `upper` must exist and gets upper/ and work/ (0755, owner 0) when they are
 * missing. */
int cop_layers_open(const char *const *lower, size_t lower_count, const char *upper, struct cop_layers *ret,
                    struct cop_error *err);
int cop_layers_idmap(const struct cop_layers *layers, int userns_fd, struct cop_error *err);
void cop_layers_done(struct cop_layers *layers);

/* To a process that was forked before they were opened, over a connected SOCK_SEQPACKET.  receive: -EPIPE when nobody is left who could
 * send them. */
int cop_layers_send(const struct cop_layers *layers, int socket_fd, struct cop_error *err);
int cop_layers_receive(int socket_fd, struct cop_layers *ret, struct cop_error *err);

/* Root inside can put a setuid-root program into what it writes, and on disk it belongs to user 0: start_failed unless a
 * folder above `path` (or path, with `itself`) keeps users of the host from searching it. */
int cop_check_private(const char *path, bool itself, struct cop_error *err);

/* In the sandbox's mount and user namespace: puts a tmpfs over "/", the layers into it, and the overlay at "root" within;
 * the current directory is then the overlay's root.  The path of the tmpfs shows nowhere. */
int cop_layers_mount(const struct cop_layers *layers, struct cop_error *err);
