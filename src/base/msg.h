/* Small typed messages over SOCK_SEQPACKET, with descriptors: what coppiced, coppice-keeper and coppice-init say to
 * each other.
 *
 * On the wire (one packet each, host byte order, same machine only):
 *      u32 magic "CPM1", u16 type, u16 field count, u32 id, u32 total length
 *      then per field: u16 tag, u16 zero, u32 length, bytes, zero padding to 4
 * The id pairs a reply with its request; events have id 0.  Fields may repeat (argv) and keep their order.  Strings go
 * without NUL and may not contain one.  A packet is foreign bytes: cop_msg_parse checks all of it before anything else
 * looks at it (fuzz target: tests/fuzz/fuzz-msg.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define COP_MSG_MAX (192 * 1024) /* below the default SO_SNDBUF of 208 KiB, so no privilege is needed to send one */
#define COP_MSG_FDS_MAX 8

struct cop_msg {
        uint16_t type;
        uint32_t id;
        struct cop_buf fields; /* encoded fields, owned */
        unsigned field_count;
        int fds[COP_MSG_FDS_MAX]; /* owned: closed by cop_msg_done unless taken; -EBADF when taken */
        unsigned fd_count;
        bool failed; /* an add went over the limit; cop_msg_send reports it */
};

void cop_msg_init(struct cop_msg *m, uint16_t type, uint32_t id);
void cop_msg_done(struct cop_msg *m);
#define _cleanup_msg_ __attribute__((cleanup(cop_msg_done)))
#define COP_MSG_NULL ((struct cop_msg){.fields.max = COP_MSG_MAX})

/* Adding: errors stick in m->failed and come out of cop_msg_send (E2BIG), so calls need no checks. */
void cop_msg_add_bytes(struct cop_msg *m, uint16_t tag, const void *data, size_t n);
void cop_msg_add_str(struct cop_msg *m, uint16_t tag, const char *s); /* NULL adds nothing */
void cop_msg_add_u64(struct cop_msg *m, uint16_t tag, uint64_t value);
void cop_msg_add_i64(struct cop_msg *m, uint16_t tag, int64_t value);
/* Takes ownership of fd at once, also on failure. */
void cop_msg_add_fd(struct cop_msg *m, int fd);
/* A whole struct cop_error: tags COP_TAG_ERROR_*. */
void cop_msg_add_error(struct cop_msg *m, const struct cop_error *err);

#define COP_TAG_ERROR_ERRNO 0xff01
#define COP_TAG_ERROR_CODE 0xff02
#define COP_TAG_ERROR_MESSAGE 0xff03

/* Reading.  `index` counts the fields with this tag, from 0.  Each returns 0, -ENOENT when there is none, -EBADMSG when
 * it has the wrong size.  Bytes and strings are borrowed from m. */
int cop_msg_get_bytes(const struct cop_msg *m, uint16_t tag, unsigned index, const void **ret, size_t *ret_n);
int cop_msg_get_u64(const struct cop_msg *m, uint16_t tag, uint64_t *ret);
int cop_msg_get_i64(const struct cop_msg *m, uint16_t tag, int64_t *ret);
/* A malloc'd copy; -EBADMSG when it has a NUL inside. */
int cop_msg_get_str(const struct cop_msg *m, uint16_t tag, unsigned index, char **ret);
/* All fields with this tag as a NULL-terminated malloc'd array of malloc'd strings (free with cop_strv_free); none
 * gives an empty array. */
int cop_msg_get_strv(const struct cop_msg *m, uint16_t tag, char ***ret, size_t *ret_n);
uint64_t cop_msg_u64_or(const struct cop_msg *m, uint16_t tag, uint64_t fallback);
/* Takes descriptor `index` out of the message; -EBADF when there is none. */
int cop_msg_take_fd(struct cop_msg *m, unsigned index);
/* True when the message carries an error, which is then put into *err (message made valid UTF-8). */
bool cop_msg_get_error(const struct cop_msg *m, struct cop_error *err);

char **cop_strv_free(char **strv);
static inline void cop_strv_freep(char ***strv)
{
        *strv = cop_strv_free(*strv);
}

/* Checks n bytes of one packet and fills *ret (without descriptors).  0, -EBADMSG, -ENOMEM. */
int cop_msg_parse(const void *packet, size_t n, struct cop_msg *ret);

/* Sends one packet with its descriptors.  0; -EAGAIN when the socket is full (nothing was sent); -E2BIG; -EPIPE…
 * Never raises SIGPIPE.  The descriptors stay owned by m. */
int cop_msg_send(int socket_fd, struct cop_msg *m);
/* True for an error of cop_msg_send that passes: the packet can be sent again later. */
bool cop_msg_again(int r);
/* Receives one packet.  1 with *ret filled, 0 at end of file, -EAGAIN, -EBADMSG, -errno.  Descriptors are O_CLOEXEC;
 * more than COP_MSG_FDS_MAX give -EBADMSG and are closed. */
int cop_msg_recv(int socket_fd, struct cop_msg *ret);
