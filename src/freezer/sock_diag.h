/* What the kernel tells of the sockets of a network namespace, those that nobody has a descriptor of included (sock_diag). */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* States of linux/tcp_states.h, which user space only finds in a header that clashes with linux/tcp.h. */
enum {
        TCP_ESTABLISHED = 1,
        TCP_SYN_SENT = 2,
        TCP_FIN_WAIT1 = 4,
        TCP_FIN_WAIT2 = 5,
        TCP_TIME_WAIT = 6,
        TCP_CLOSE = 7,
        TCP_CLOSE_WAIT = 8,
        TCP_LAST_ACK = 9,
        TCP_LISTEN = 10,
        TCP_CLOSING = 11,
        TCP_NEW_SYN_RECV = 12
};

/* One unix socket.  One that waits to be accepted has the inode number 0. */
struct cop_unix_info {
        uint32_t ino, peer, state, type, queued, backlog;
        uint32_t shutdown;
        uint32_t icon_first,
                icons; /* into cop_unix_table.icons: the clients that wait at a listener, first come first; 0: closed */
};

struct cop_unix_table {
        struct cop_unix_info *list; /* owned; sorted by inode */
        size_t count, allocated;
        uint32_t *icons; /* owned */
        size_t icon_count, icons_allocated;
};

/* One TCP or UDP socket; IPv4 addresses as IPv6 has them, ports in network order.  The inode is 0 when nobody has it: it waits to be
 * accepted, or was closed and has not come to its end. */
struct cop_tcp_info {
        struct sockaddr_in6 local, remote;
        uint32_t ino, queued;
        int state; /* as TCP_ESTABLISHED … */
        uint32_t shutdown;
};

struct cop_tcp_table {
        struct cop_tcp_info *list; /* owned */
        size_t count, allocated;
};

struct nlmsghdr;
struct nlattr;
/* Sends a request for a dump and gives each answer to `parse`, which fails when memory is short. */
int cop_sock_diag_ask(int diag_fd, const void *request, size_t size,
                      int (*parse)(void *table, const struct nlmsghdr *h), void *table, struct cop_error *err);
/* The attribute of an answer after `last`, NULL: the first, which follows a header of this size; NULL when there is none. */
const struct nlattr *cop_sock_diag_next(const struct nlmsghdr *h, size_t header, const struct nlattr *last);
/* diag_fd is a NETLINK_SOCK_DIAG socket of the namespace.  The table, empty before, is to be given back in any case. */
int cop_unix_table_collect(int diag_fd, struct cop_unix_table *t, struct cop_error *err);
void cop_unix_table_done(struct cop_unix_table *t);
/* NULL: not there. */
const struct cop_unix_info *cop_unix_table_find(const struct cop_unix_table *t, uint64_t ino);

/* The address and port of either family, IPv4 as IPv6 has it (but any as any); false: of no such family. */
bool cop_socket_as_ipv6(const void *address, size_t length, struct sockaddr_in6 *ret);
/* All that are connected, or were until one side has closed. */
int cop_tcp_table_collect(int diag_fd, struct cop_tcp_table *t, struct cop_error *err);
/* Those that are or will be waiting to be accepted, and others that are connected. */
int cop_tcp_table_collect_served(int diag_fd, struct cop_tcp_table *t, struct cop_error *err);
/* All UDP sockets that have a port. */
int cop_udp_table_collect(int diag_fd, struct cop_tcp_table *t, struct cop_error *err);
void cop_tcp_table_done(struct cop_tcp_table *t);
