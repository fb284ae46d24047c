/* Messages of the Jupyter protocol 5.x on the wire: frames, signatures, headers (notes/jupyter.md 1.2).
 *
 *      [identity or topic …] <IDS|MSG> signature header parent_header metadata content [buffer …]
 *
 * No zmq here: frames are plain memory, so that the same code serves sockets, tests, the fuzzer and WebSockets.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define COP_MESSAGE_FRAMES_MAX 64            /* more are dropped: only buffers can be that many */
#define COP_MESSAGE_HEADER_MAX (1024 * 1024) /* bytes of header and of parent_header */
#define COP_MESSAGE_TYPE_MAX 64
#define COP_MESSAGE_ID_MAX 256
#define COP_SIGNATURE_SIZE 65 /* hex digits and NUL; "" when there is no key */

struct cop_frame {
        char *data; /* borrowed */
        size_t len;
};

/* -- signatures --------------------------------------------------------------------------------------------------- */

struct cop_signer; /* HMAC-SHA256 with one key */

/* key "" makes a signer whose signatures are "" and which accepts everything. */
int cop_signer_new(const char *key, struct cop_signer **ret, struct cop_error *err);
struct cop_signer *cop_signer_free(struct cop_signer *s);

/* Signs header, parent_header, metadata, content in this order. */
int cop_signer_sign(struct cop_signer *s, const struct cop_frame frames[static 4], char ret[static COP_SIGNATURE_SIZE]);
/* Compares in constant time. */
bool cop_signer_check(struct cop_signer *s, const struct cop_frame *signature, const struct cop_frame frames[static 4]);

/* -- receiving ----------------------------------------------------------------------------------------------------- */

struct cop_message {
        char type[COP_MESSAGE_TYPE_MAX];    /* header.msg_type */
        char id[COP_MESSAGE_ID_MAX];        /* header.msg_id, "" = none */
        char parent_id[COP_MESSAGE_ID_MAX]; /* parent_header.msg_id, "" = none */
        json_t *header;                     /* owned */
        struct cop_frame metadata, content; /* borrowed from the frames */
        size_t buffer_count;
};

void cop_message_done(struct cop_message *m);

/* Finds the delimiter, checks the signature, decodes header and parent header.  -EKEYREJECTED: wrong signature; -EBADMSG:
 * malformed.  *ret is empty on failure.  Strings that do not fit are malformed. */
int cop_message_parse(struct cop_frame *frames, size_t count, struct cop_signer *signer, struct cop_message *ret,
                      struct cop_error *err);

/* The content as an object (-EBADMSG when it is none). */
int cop_message_content(const struct cop_message *m, json_t **ret, bool *ret_repaired, struct cop_error *err);

/* -- sending ------------------------------------------------------------------------------------------------------- */

/* A request ready to be sent: <IDS|MSG> signature header parent metadata content. */
struct cop_kernel_request {
        char signature[COP_SIGNATURE_SIZE];
        char *header, *parent, *content; /* owned */
        struct cop_frame frames[6];      /* borrowed from the above */
};

void cop_kernel_request_done(struct cop_kernel_request *r);

/* msg_id, session and type are plain ASCII; parent is a header to answer or NULL; content is an object. */
int cop_kernel_request_build(struct cop_signer *signer, const char *session, const char *msg_id, const char *type,
                             json_t *parent, json_t *content, struct cop_kernel_request *ret, struct cop_error *err);
