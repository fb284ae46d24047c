/* What images say about sockets (img_file of kind unix, inet, netlink, packet), for dump_sock.c and restore_sock.c.
 *
 *      path    the socket's own address, as getsockname gives it (whole sockaddr); empty: unnamed
 *      peer    the address it is connected to, when the peer is not a file of the image; of unix sockets: struct
 *              img_credentials, whom SO_PEERCRED names (waiting and left ones: at the end that is not accepted yet)
 *      data    struct img_sockopt[]
 *      packets its receive queue, in order; of waiting and left ones what they have sent
 *
 * A packet socket: path a sockaddr_ll of which the protocol counts, place the name of its interface, peer a struct img_sockopt[] to be
 * set late, groups a struct img_packet_membership[].
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "freezer/image.h"

#ifndef SIOCUNIXFILE
#define SIOCUNIXFILE 0x89e0
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

#define COP_SOCKET_QUEUE_MAX (64UL << 20) /* bytes in the queue of one socket */

enum img_socket_arg {
        IMG_SOCK_TYPE, /* SOCK_… */
        IMG_SOCK_FAMILY,
        IMG_SOCK_PROTOCOL,
        IMG_SOCK_STATE,   /* enum img_socket_state */
        IMG_SOCK_BACKLOG, /* of a listener; of one that waits at a listener: how many came before */
        IMG_SOCK_PEER,    /* file index of the connected peer, or IMG_NONE */
        IMG_SOCK_LISTENER, /* file index of the listener this end was accepted from, or waits at (pending); or IMG_NONE */
        IMG_SOCK_SHUTDOWN, /* bit 0: receive side shut, bit 1: send side */
        IMG_SOCK_MODE,     /* of a unix socket's file; 0: it has been removed */
        IMG_SOCK_CWD,      /* process in whose folder a relative address is */
        IMG_SOCK_OWNER,    /* uid | gid << 32 of the file */
        IMG_SOCK_ERROR, /* errno that the next call will tell: of a TCP connection that was reset or refused, of a datagram
                         * socket whose peer is gone, of a unix stream whose peer left something unread; or 0 */
};

enum img_socket_state {
        IMG_SOCK_IDLE = 1,
        IMG_SOCK_LISTENING,
        IMG_SOCK_CONNECTED,
        IMG_SOCK_PENDING,    /* connected, not yet accepted */
        IMG_SOCK_CLOSED,     /* its peer was outside, or is gone: reads give what is queued, then the end */
        IMG_SOCK_WAITING,    /* as pending, with packets that it has sent */
        IMG_SOCK_LEFT,       /* the same, closed by now: no descriptor has it */
        IMG_SOCK_CONNECTING, /* TCP, to `peer`, a listener of the tree that has not answered */
};

/* An ICMP echo socket ("ping"). */
static inline bool cop_socket_is_echo(const struct img_file *f)
{
        return f->kind == IMG_FILE_INET && f->arg[IMG_SOCK_TYPE] == SOCK_DGRAM &&
               (f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_ICMP || f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_ICMPV6);
}

/* As they are inside the tree; pid 0: of a process that has ended. */
struct img_credentials {
        int32_t pid;
        uint32_t uid, gid;
};

static inline bool cop_is_socket(const struct img_file *f)
{
        return f->kind == IMG_FILE_UNIX || f->kind == IMG_FILE_INET || f->kind == IMG_FILE_NETLINK ||
               f->kind == IMG_FILE_PACKET;
}

static inline bool cop_socket_waits(uint64_t state)
{
        return state == IMG_SOCK_PENDING || state == IMG_SOCK_WAITING || state == IMG_SOCK_LEFT;
}

struct img_sockopt;
/* restore_sockopt.c: an integer of SOL_SOCKET, 0 when it cannot be had; sets the size of a buffer (SO_SNDBUF or SO_RCVBUF) as getsockopt
 * gives it; most of a file's options (the list that is its data); those that must come when queues are full, and the filter (its
 * instructions). */
int cop_socket_option(int fd, int name);
void cop_socket_set_buffer(int fd, int name, int size);
void cop_socket_apply_options(const struct img_file *f, const struct img_sockopt *list, int fd);
void cop_socket_apply_last(const struct img_file *f, const void *filter, const struct img_sockopt *list, int fd);
/* restore_bind.c: connects to a socket of ours, by its file if it has one.  0 or -errno. */
struct sockaddr;
int cop_socket_connect_unix(int fd, int to, const struct sockaddr *address, socklen_t length);
/* A descriptor of the file of a unix socket of ours: through it /proc/self/fd leads to the socket, whatever its name is for whom, and
 * also when it has none any more.  Negative: it has no file. */
int cop_socket_file(int fd);
struct sockaddr_un;
void cop_socket_file_address(int file_fd, struct sockaddr_un *ret);

/* In a multicast group; an address of IPv4 is in the first bytes. */
struct img_membership {
        char interface[16];
        uint16_t family;
        uint8_t address[16];
};

struct img_packet_membership {
        char interface[16];
        uint16_t type, length;
        uint32_t count; /* how often it was asked for */
        uint8_t address[32];
};

struct img_sockopt {
        int32_t level, name;
        uint32_t length;
        uint8_t value[32];
};
