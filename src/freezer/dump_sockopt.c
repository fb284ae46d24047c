/* What was set on sockets: options, filters, the groups that they are in. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump_sock.h"

/* What the headers of an older libc lack. */
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef IPV6_UNICAST_IF
#define IPV6_UNICAST_IF 76
#endif
#ifndef SO_TXREHASH
#define SO_TXREHASH 74
#endif
#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif
#ifndef PACKET_VNET_HDR_SZ
#define PACKET_VNET_HDR_SZ 24
#endif
#define RAW_ICMP_FILTER 1 /* ICMP_FILTER of linux/icmp.h, and ICMPV6_FILTER */
#define UDPLITE_SEND_CSCOV 10
#define UDPLITE_RECV_CSCOV 11

#define GROUPS_MAX 1024U
#define MEMBERSHIPS_MAX 64

/* ---- options ---- */

/* `usual` is what a new socket has: an option that still is so is not recorded.  ALWAYS: it depends, on the machine or on what
 * a thaw does before options are set. */
#define ALWAYS (-2)
static const struct {
        int family, level, name, usual;
} options[] = {
        {0, SOL_SOCKET, SO_BUF_LOCK, 0}, /* tells whether the next two were set by the program */
        {0, SOL_SOCKET, SO_SNDBUF, ALWAYS},
        {0, SOL_SOCKET, SO_RCVBUF, ALWAYS},
        {0, SOL_SOCKET, SO_REUSEADDR, ALWAYS},
        {0, SOL_SOCKET, SO_KEEPALIVE, 0},
        {0, SOL_SOCKET, SO_BROADCAST, 0},
        {0, SOL_SOCKET, SO_OOBINLINE, 0},
        {0, SOL_SOCKET, SO_LINGER, 0},
        {0, SOL_SOCKET, SO_RCVTIMEO, 0},
        {0, SOL_SOCKET, SO_SNDTIMEO, 0},
        {0, SOL_SOCKET, SO_RCVLOWAT, 1},
        {AF_INET, SOL_SOCKET, SO_REUSEPORT, ALWAYS},
        {0, SOL_SOCKET, SO_DONTROUTE, 0},
        {0, SOL_SOCKET, SO_BINDTODEVICE, 0},
        {0, SOL_SOCKET, SO_MARK, 0},
        {0, SOL_SOCKET, SO_RXQ_OVFL, 0},
        {0, SOL_SOCKET, SO_NO_CHECK, 0},
        {0, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 0},
        {0, SOL_SOCKET, SO_ZEROCOPY, 0},
        {0, SOL_SOCKET, SO_BUSY_POLL, ALWAYS},
        {0, SOL_SOCKET, SO_PREFER_BUSY_POLL, 0},
        {0, SOL_SOCKET, SO_MAX_PACING_RATE, -1},
        {0, SOL_SOCKET, SO_TXREHASH, 1},
        {0, SOL_SOCKET, SO_TIMESTAMPING, 0},
        {0, SOL_SOCKET, SO_WIFI_STATUS, 0},
        {0, SOL_SOCKET, SO_RCVMARK, 0},
        {0, SOL_SOCKET, SO_LOCK_FILTER, 0},
        /* Of these four one is on at most; setting another to 0 would set it off. */
        {0, SOL_SOCKET, SO_TIMESTAMP_OLD, 0},
        {0, SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0},
        {0, SOL_SOCKET, SO_TIMESTAMP_NEW, 0},
        {0, SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0},
        {AF_UNIX, SOL_SOCKET, SO_PASSCRED, 0},
        {AF_UNIX, SOL_SOCKET, SO_PASSSEC, 0},
        {AF_UNIX, SOL_SOCKET, SO_PASSPIDFD, 0},
        {0, SOL_SOCKET, SO_PEEK_OFF, -1},
        {AF_INET, IPPROTO_IP, IP_TOS, 0},
        {AF_INET, IPPROTO_IP, IP_TTL, ALWAYS},
        {AF_INET, IPPROTO_IP, IP_MTU_DISCOVER, ALWAYS},
        {AF_INET, IPPROTO_IP, IP_PKTINFO, 0},
        {AF_INET, IPPROTO_IP, IP_RECVERR, 0},
        {AF_INET, IPPROTO_IP, IP_RECVTTL, 0},
        {AF_INET, IPPROTO_IP, IP_RECVTOS, 0},
        {AF_INET, IPPROTO_IP, IP_RECVORIGDSTADDR, 0},
        {AF_INET, IPPROTO_IP, IP_FREEBIND, 0},
        {AF_INET, IPPROTO_IP, IP_TRANSPARENT, 0},
        {AF_INET, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0},
        {AF_INET, IPPROTO_IP, IP_MULTICAST_TTL, 1},
        {AF_INET, IPPROTO_IP, IP_MULTICAST_LOOP, 1},
        {AF_INET, IPPROTO_IP, IP_MULTICAST_ALL, 1},
        {AF_INET, IPPROTO_IP, IP_MULTICAST_IF, 0},
        {AF_INET, IPPROTO_IP, IP_UNICAST_IF, 0},
        {AF_INET, IPPROTO_IP, IP_RECVOPTS, 0},
        {AF_INET, IPPROTO_IP, IP_RETOPTS, 0},
        {AF_INET, IPPROTO_IP, IP_CHECKSUM, 0},
        {AF_INET, IPPROTO_IP, IP_RECVFRAGSIZE, 0},
        {AF_INET, IPPROTO_IP, IP_PASSSEC, 0},
        {AF_INET, IPPROTO_IP, IP_MINTTL, 0},
        {AF_INET, IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0},
        {AF_INET, IPPROTO_TCP, TCP_NODELAY, 0},
        {AF_INET, IPPROTO_TCP, TCP_KEEPIDLE, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_KEEPINTVL, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_KEEPCNT, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_CORK, 0},
        {AF_INET, IPPROTO_TCP, TCP_USER_TIMEOUT, 0},
        {AF_INET, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
        {AF_INET, IPPROTO_TCP, TCP_CONGESTION, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0},
        {AF_INET, IPPROTO_TCP, TCP_MAXSEG, 536},
        {AF_INET, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0},
        {AF_INET, IPPROTO_TCP, TCP_SYNCNT, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_LINGER2, ALWAYS},
        {AF_INET, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 0},
        {AF_INET, IPPROTO_TCP, TCP_INQ, 0},
        {AF_INET, IPPROTO_TCP, TCP_SAVE_SYN, 0},
        {AF_INET, IPPROTO_TCP, TCP_FASTOPEN, 0},
        {AF_INET, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0},
        {AF_INET, IPPROTO_UDP, UDP_CORK, 0},
        {AF_INET, IPPROTO_UDP, UDP_SEGMENT, 0},
        {AF_INET, IPPROTO_UDP, UDP_GRO, 0},
        {AF_INET, IPPROTO_UDP, UDP_NO_CHECK6_TX, 0},
        {AF_INET, IPPROTO_UDP, UDP_NO_CHECK6_RX, 0},
        {AF_INET, IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV, 0},
        {AF_INET, IPPROTO_UDPLITE, UDPLITE_RECV_CSCOV, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, ALWAYS},
        {AF_INET6, IPPROTO_IPV6, IPV6_UNICAST_HOPS, ALWAYS},
        {AF_INET6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1},
        {AF_INET6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1},
        {AF_INET6, IPPROTO_IPV6, IPV6_MTU_DISCOVER, ALWAYS},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVPKTINFO, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVERR, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVTCLASS, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVHOPOPTS, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVRTHDR, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVDSTOPTS, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVPATHMTU, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_DONTFRAG, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_FREEBIND, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_TRANSPARENT, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_MINHOPCOUNT, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, ALWAYS},
        {AF_INET6, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1},
        {AF_INET6, IPPROTO_IPV6, IPV6_MULTICAST_IF, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_UNICAST_IF, 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_TCLASS, 0},
        {AF_INET, IPPROTO_RAW, RAW_ICMP_FILTER, 0},
        {AF_INET, IPPROTO_ICMPV6, RAW_ICMP_FILTER, 0},
        {AF_INET, IPPROTO_RAW, IPV6_CHECKSUM, -1},
        {AF_INET, IPPROTO_IP, IP_HDRINCL, ALWAYS},
        {AF_INET6, IPPROTO_IPV6, IPV6_HDRINCL, ALWAYS},
        {AF_PACKET, SOL_PACKET, PACKET_VERSION, 0},
        {AF_PACKET, SOL_PACKET, PACKET_RESERVE, 0},
        {AF_PACKET, SOL_PACKET, PACKET_VNET_HDR, 0},
        {AF_PACKET, SOL_PACKET, PACKET_VNET_HDR_SZ, 0},
        {AF_PACKET, SOL_PACKET, PACKET_LOSS, 0},
        {AF_PACKET, SOL_PACKET, PACKET_AUXDATA, 0},
        {AF_PACKET, SOL_PACKET, PACKET_ORIGDEV, 0},
        {AF_PACKET, SOL_PACKET, PACKET_TIMESTAMP, 0},
        {AF_PACKET, SOL_PACKET, PACKET_TX_HAS_OFF, 0},
        {AF_PACKET, SOL_PACKET, PACKET_QDISC_BYPASS, 0},
        {AF_PACKET, SOL_PACKET, PACKET_IGNORE_OUTGOING, 0},
        {AF_PACKET, SOL_PACKET, PACKET_COPY_THRESH, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_PKTINFO, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_BROADCAST_ERROR, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_NO_ENOBUFS, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_CAP_ACK, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_EXT_ACK, 0},
        {AF_NETLINK, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 0},
        {0, SOL_SOCKET, SO_PRIORITY, 0}, /* after IP_TOS, which sets it */
};

static bool is_usual(const struct img_sockopt *o, int usual)
{
        static const uint8_t zeros[sizeof(o->value)];
        int value;

        if (usual == ALWAYS || (o->length != sizeof(value) && usual != 0 && usual != -1))
                return false;
        if (usual == 0)
                return memcmp(o->value, zeros, o->length) == 0;
        memcpy(&value, o->value, sizeof(value));
        return value == usual;
}

/* What a connection makes of these two is not what was asked for. */
static bool is_told(int fd, int level, int name)
{
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer);

        return level != IPPROTO_TCP || (name != TCP_MAXSEG && name != TCP_WINDOW_CLAMP) ||
               getpeername(fd, (struct sockaddr *)&peer, &length) < 0;
}

static bool is_for(size_t option, const struct img_file *f)
{
        uint64_t family = f->arg[IMG_SOCK_FAMILY];
        int of = options[option].family, level = options[option].level;

        if (of && (uint64_t)of != family && !(of == AF_INET && family == AF_INET6))
                return false;
        if (level == IPPROTO_TCP || level == IPPROTO_UDP || level == IPPROTO_UDPLITE)
                return f->arg[IMG_SOCK_PROTOCOL] == (uint64_t)level;
        bool raw = level == IPPROTO_RAW || level == IPPROTO_ICMPV6 ||
                   (level == IPPROTO_IP && options[option].name == IP_HDRINCL) ||
                   (level == IPPROTO_IPV6 && options[option].name == IPV6_HDRINCL);
        return !raw || f->arg[IMG_SOCK_TYPE] == SOCK_RAW;
}

static struct img_ref dump_options(struct cop_dump *d, const struct img_file *f, int fd)
{
        struct img_sockopt list[ELEMENTSOF(options)];
        size_t n = 0;

        for (size_t i = 0; i < ELEMENTSOF(options); i++) {
                struct img_sockopt o = {.level = options[i].level, .name = options[i].name};
                socklen_t length = sizeof(o.value);
                if (!is_for(i, f) || !is_told(fd, o.level, o.name) ||
                    getsockopt(fd, o.level, o.name, o.value, &length) < 0)
                        continue;
                o.length = length;
                if (!is_usual(&o, options[i].usual))
                        list[n++] = o;
        }
        return cop_image_put(d->writer, list, n * sizeof(list[0]));
}

/* ---- filters ---- */

static int dump_filter(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                       struct cop_error *err)
{
        struct sock_filter program[BPF_MAXINSNS];
        socklen_t count = 0;

        /* Counted in instructions; without room it only tells how many. */
        if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &count) == 0 && count == 0)
                return 0;
        if (count > BPF_MAXINSNS || count == 0 || getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, program, &count) < 0)
                return errno == ENOPROTOOPT ? 0
                                            : cop_not_freezable(d, known->proc, err,
                                                                "has an eBPF program on a socket (fd %d)", known->fd);
        f->filter = cop_image_put(d->writer, program, count * sizeof(program[0]));
        return 0;
}

/* ---- groups ---- */

static int dump_netlink_groups(struct cop_dump *d, struct img_file *f, int fd)
{
        uint32_t bits[GROUPS_MAX / 32] = {0};
        socklen_t length = sizeof(bits);

        if (getsockopt(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, bits, &length) < 0)
                return 0;
        f->groups = cop_image_put(d->writer, bits, MIN_OF(length, (socklen_t)sizeof(bits)) / 4 * 4);
        return 0;
}

/* The kernel tells which groups a network namespace is in, and each socket whether it is in one of them. */
static int ask_member(struct cop_dump *d, const struct cop_dump_file *known, int fd, const struct img_membership *m,
                      unsigned interface, bool *ret, struct cop_error *err)
{
        bool six = m->family == AF_INET6;
        struct group_filter filter = {.gf_interface = interface};
        socklen_t length = sizeof(filter);

        filter.gf_group.ss_family = m->family;
        memcpy((char *)&filter.gf_group +
                       (six ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr)),
               m->address, six ? 16 : 4);
        *ret = getsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, MCAST_MSFILTER, &filter, &length) == 0;
        if (*ret && (filter.gf_fmode != MCAST_EXCLUDE || filter.gf_numsrc > 0))
                return cop_not_freezable(d, known->proc, err, "takes what some send to a multicast group (fd %d)",
                                         known->fd);
        return 0;
}

/* "1    lo     ff020000000000000000000000000001     1 0000000C 0", or for IPv4 a line of its own for each interface:
 * "1  lo    :     1      V3", then for each group "    010000E0     1 0:00000000". */
static bool read_group(const char *line, struct img_membership *m, unsigned *interface)
{
        char address[40], name[IFNAMSIZ];
        unsigned index;

        if (m->family == AF_INET6) {
                if (sscanf(line, "%u %15s %32[0-9a-f]", interface, m->interface, address) != 3)
                        return false;
                for (size_t i = 0; i < 16; i++)
                        if (sscanf(address + 2 * i, "%2hhx", &m->address[i]) != 1)
                                return false;
                return true;
        }
        if (line[0] != '\t') {
                if (sscanf(line, "%u %15[^ \t:]", &index, name) == 2) {
                        *interface = index;
                        memcpy(m->interface, name, sizeof(name));
                }
                return false;
        }
        return sscanf(line, " %8x", &index) == 1 && memcpy(m->address, &index, sizeof(index));
}

static int dump_memberships(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                            uint16_t family, struct cop_error *err)
{
        struct img_membership list[MEMBERSHIPS_MAX], m = {.family = family};
        _cleanup_free_ char *text = NULL;
        unsigned interface = 0;
        size_t n = 0;
        bool member;

        if (cop_read_file(d->tree.procs[known->proc].dir_fd, family == AF_INET6 ? "net/igmp6" : "net/igmp", 1UL << 20,
                          &text, NULL, NULL) < 0)
                return 0;
        for (const char *line = text; line && *line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (!read_group(line, &m, &interface))
                        continue;
                int r = ask_member(d, known, fd, &m, interface, &member, err);
                if (r < 0)
                        return r;
                if (member && n == MEMBERSHIPS_MAX)
                        return cop_not_freezable(d, known->proc, err, "is in too many multicast groups (fd %d)",
                                                 known->fd);
                if (member)
                        list[n++] = m;
        }
        f->groups = cop_image_put(d->writer, list, n * sizeof(list[0]));
        return 0;
}

int cop_dump_sock_options(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                          struct cop_error *err)
{
        uint64_t family = f->arg[IMG_SOCK_FAMILY];
        char layer[16];
        socklen_t length = sizeof(layer);

        f->data = dump_options(d, f, fd);
        if (f->arg[IMG_SOCK_PROTOCOL] == IPPROTO_TCP && getsockopt(fd, IPPROTO_TCP, TCP_ULP, layer, &length) == 0 &&
            length > 0)
                return cop_not_freezable(d, known->proc, err, "has TCP do %.*s (TCP_ULP, fd %d)", (int)length, layer,
                                         known->fd);
        int r = dump_filter(d, known, f, fd, err);
        if (r == 0 && family == AF_NETLINK)
                r = dump_netlink_groups(d, f, fd);
        else if (r == 0 && (family == AF_INET || family == AF_INET6) && f->arg[IMG_SOCK_TYPE] != SOCK_STREAM)
                r = dump_memberships(d, known, f, fd, (uint16_t)family, err);
        return r;
}
