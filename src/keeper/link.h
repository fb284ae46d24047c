/* One SEQPACKET connection of the keeper (to its client or to init) with a bounded queue of messages that did not fit into
 * the socket yet.  While messages wait nothing more is read from the peer, so a peer that does not read cannot make the
 * queue grow: it holds at most the answers to what was already read. */
#pragma once

#include "base/loop.h"
#include "base/msg.h"

#define COP_LINK_QUEUE_MAX 4096
#define COP_LINK_BYTES_MAX (8u << 20) /* waiting; beyond, the link fails */

struct cop_link;

struct cop_link_calls {
        void (*message)(struct cop_link *link, struct cop_msg *m, void *userdata);
        void (*writable)(struct cop_link *link, void *userdata); /* the queue became empty */
        /* End of file, an error, a malformed packet or a full queue; called once, from the loop; free the link in it. */
        void (*closed)(struct cop_link *link, void *userdata);
};

/* Takes fd over, also on failure; it is made non-blocking. */
int cop_link_new(struct cop_loop *loop, int fd, const struct cop_link_calls *calls, void *userdata,
                 struct cop_link **ret, struct cop_error *err);
struct cop_link *cop_link_free(struct cop_link *link); /* takes NULL; returns NULL */

/* Sends or queues; the message is emptied (descriptors included). */
void cop_link_send(struct cop_link *link, struct cop_msg *m);
/* Messages are waiting: do not produce more than needed. */
bool cop_link_busy(const struct cop_link *link);
/* Bytes that are waiting. */
/* Reads all that has come by now, beyond the measure of one turn; the other side must not be able to send meanwhile. */
void cop_link_drain(struct cop_link *link);
size_t cop_link_waiting(const struct cop_link *link);
