/* What the files that rebuild sockets share: restore_sock.c (sockets and their order), restore_bind.c (names), restore_connect.c
 * (connections), restore_packet.c and restore_queue.c (what is queued). */
#pragma once

#include <sys/socket.h>

#include "freezer/restore.h"
#include "freezer/sockets.h"

static inline uint64_t cop_socket_state(const struct img_file *f)
{
        return f->arg[IMG_SOCK_STATE];
}

static inline bool cop_socket_named(const struct img_file *f)
{
        return f->path.length > sizeof(sa_family_t);
}

/* At a port, which is at the same place for IPv6. */
static inline const struct sockaddr *cop_socket_address(const struct cop_restore *r, const struct img_ref *ref)
{
        return cop_image_at(r->image, ref);
}

static inline uint16_t cop_socket_port(const struct sockaddr *a)
{
        return ((const struct sockaddr_in *)(const void *)a)->sin_port; /* at the same place for IPv6 */
}

/* Those that need nobody else to be there. */
static inline bool cop_socket_single(const struct img_file *f)
{
        return cop_socket_state(f) == IMG_SOCK_IDLE || cop_socket_state(f) == IMG_SOCK_LISTENING ||
               cop_socket_state(f) == IMG_SOCK_CONNECTING;
}

static inline bool cop_socket_unix_datagram(const struct img_file *f)
{
        return f->kind == IMG_FILE_UNIX && f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM;
}

/* One that only its mate can send to, the other of the pair that it was made with. */
static inline bool cop_socket_nameless(const struct img_file *f)
{
        return cop_socket_unix_datagram(f) && !cop_socket_named(f);
}

/* restore_sock.c: the other datagram socket of its pair, whoever they are connected to by now; or IMG_NONE. */
uint32_t cop_socket_mate(const struct cop_restore *r, uint32_t index);
/* A new socket of the kind of this one, or -1 with errno. */
int cop_socket_new(const struct img_file *f);
/* An error of errno about this socket. */
int cop_socket_complain(struct cop_error *err, const struct img_file *f, const char *what);
/* Keeps a new descriptor as the object of a file. */
int cop_socket_keep(struct cop_restore *r, uint32_t index, int fd);
/* Whom SO_PEERCRED names: who made a pair or listened, or, at the accepting end of a connection, who connected. */
const struct img_credentials *cop_socket_maker(const struct cop_restore *r, const struct img_file *f);
/* A pair of unix sockets; b IMG_NONE: one whose other end closes when its queue is written. */
int cop_socket_make_pair(struct cop_restore *r, uint32_t a, uint32_t b, struct cop_error *err);

/* restore_bind.c: gives a unix or network socket its address; -errno.  All that are there at its port consent to share it
 * (SO_REUSEPORT), until their options are set. */
int cop_socket_bind(struct cop_restore *r, const struct img_file *f, int fd);
void cop_socket_share_port(struct cop_restore *r, const struct img_file *f, int fd);
/* Whether a network address is one of this machine, for a socket like this one: nothing may be sent to another. */
bool cop_socket_is_here(const struct cop_restore *r, const struct img_file *like, const struct img_ref *address);

/* restore_connect.c: the connection of which this is one end; all that wait at a listener, in their order. */
int cop_socket_connect(struct cop_restore *r, uint32_t index, struct cop_error *err);
int cop_socket_fill_listener(struct cop_restore *r, uint32_t listener, struct cop_error *err);
/* TCP that receives no more and has sent its end answers late segments with a reset: what was queued must have come. */
void cop_socket_await_queue(struct cop_restore *r, const struct img_file *f, int fd);

/* restore_sockopt.c: what must be set before bind; most of it, and groups; what must come when queues are full, and the filter. */
void cop_socket_set_before_bind(struct cop_restore *r, const struct img_file *f, int fd);
void cop_socket_set_options(struct cop_restore *r, const struct img_file *f, int fd);
void cop_socket_set_last(struct cop_restore *r, const struct img_file *f, int fd);

/* restore_packet.c: one that receives nothing yet; its rings, address and groups, when nothing more is sent here.  And what a socket has
 * received meanwhile is dropped. */
int cop_socket_new_packet(const struct cop_restore *r, const struct img_file *f);
int cop_socket_finish_packet(struct cop_restore *r, const struct img_file *f, int fd, struct cop_error *err);
void cop_socket_drop_received(int fd);
/* restore_as.c: credentials of the image, NULL when there are none; a call that is made in their name (NULL: in our own), and its
 * result (child_call.h). */
const struct img_credentials *cop_restore_credentials(const struct cop_restore *r, const struct img_ref *ref);
int cop_restore_as(struct cop_restore *r, const struct img_credentials *who, int (*call)(void *argument),
                   void *argument);

/* restore_queue.c: all that was queued for a socket, written by its peer `fd` before that is closed. */
int cop_socket_send_all(struct cop_restore *r, const struct img_file *f, int fd);
/* True for datagram sockets with messages of others than their peer: those must come before it is connected. */
bool cop_socket_queue_first(const struct cop_restore *r, uint32_t index);
int cop_socket_restore_queue(struct cop_restore *r, uint32_t index, struct cop_error *err);
