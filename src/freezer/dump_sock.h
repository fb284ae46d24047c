/* What the files that save sockets share: dump_sock.c and dump_tcp.c (each by itself, and who belongs to whom), dump_waiting.c and dump_accept.c
 * (TCP and unix connections that are not accepted yet). */
#pragma once

#include "freezer/dump.h"
#include "freezer/sock_diag.h"
#include "freezer/sockets.h"

/* dump_sockopt.c: options, filter and groups of a socket of known family, type and protocol. */
int cop_dump_sock_options(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                          struct cop_error *err);
/* dump_raw.c: a raw or an ICMP echo socket, whose address and peer are known as far as the socket tells. */
int cop_dump_raw(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                 struct cop_error *err);
/* dump_packet.c: a packet socket, whose options are known. */
int cop_dump_packet(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                    struct cop_error *err);
struct img_file *cop_dump_file_at(struct cop_dump *d, uint32_t index);
/* What the file of this index is known by; NULL when no descriptor has it. */
struct cop_dump_file *cop_dump_known_socket(const struct cop_dump *d, uint32_t index);
/* Whether the other end sends nothing more: not 0; 3 when it receives nothing more either. */
unsigned cop_dump_hung_up(int fd);
/* dump_queue.c: who had sent a message, false: that is not told. */
struct msghdr;
bool cop_dump_get_credentials(struct msghdr *m, struct ucred *ret);
/* The unix socket of an inode (of the device of `like`), or IMG_NONE. */
uint32_t cop_dump_unix_socket(struct cop_dump *d, const struct img_file *like, uint32_t ino);
/* dump_tcp.c: a TCP socket by itself, whose peer has been asked for; then who belongs to whom and what they have received, also for
 * those that were added later, from file `first` on. */
int cop_dump_tcp(struct img_file *f, int fd, struct cop_error *err);
int cop_dump_tcp_link(struct cop_dump *d, struct cop_error *err);
int cop_dump_tcp_link_again(struct cop_dump *d, uint32_t first, struct cop_error *err);
/* dump_stream.c.  What a TCP socket has received becomes the packets of a file. */
int cop_dump_received(struct cop_dump *d, int fd, uint32_t index, struct cop_error *err);
/* What one end of a TCP connection has sent, received by the other or on its way, becomes the packets of a file.  `fin`: and that was
 * its end. */
int cop_dump_stream(struct cop_dump *d, int from, int to, bool fin, uint32_t index, struct cop_error *err);
/* TCP_REPAIR mode changes SO_REUSEADDR, which is kept meanwhile. */
int cop_dump_repair_begin(int fd, int *ret_reuse);
void cop_dump_repair_end(int fd, int reuse);

/* dump_waiting.c: saves what waits in TCP connections that are not accepted yet.  What cannot be put back is left for the last moment
 * before the tree ends (cop_dump_accept), or refused. */
int cop_dump_tcp_waiting(struct cop_dump *d, bool last, struct cop_error *err);
/* dump_accept.c: marks the clients that wait at a unix listener; what they have sent follows (cop_dump_accept). */
void cop_dump_unix_waiting(struct cop_dump *d, const struct cop_unix_table *t, uint32_t listener);
/* dump_reconnect.c: whether such a client can be replaced (refused, else). */
int cop_dump_may_reconnect(struct cop_dump *d, uint32_t client, struct cop_error *err);
/* dump_sock.c: a call in the tree's pid namespace (child_call.h); -errno when it may not be entered. */
int cop_dump_inside(const struct cop_dump *d, int (*call)(void *argument), void *argument);
