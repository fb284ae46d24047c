/* Less usual options of TCP, UDP, UDP-Lite, IPv6, unix and netlink sockets; IP_FREEBIND, SO_BINDTODEVICE, classic filters; groups of multicast
 * and of netlink. */
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/udp.h>

#include "../sock.h"

#define UDPLITE_SEND_CSCOV 10

struct option {
        int level, name, value;
};

static const struct option tcp[] = {
        {IPPROTO_TCP, TCP_MAXSEG, 1000}, {IPPROTO_TCP, TCP_SYNCNT, 3},
        {IPPROTO_TCP, TCP_LINGER2, 7},   {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
        {IPPROTO_TCP, TCP_SAVE_SYN, 1},  {IPPROTO_TCP, TCP_DEFER_ACCEPT, 3},
        {SOL_SOCKET, SO_MARK, 7},        {SOL_SOCKET, SO_ZEROCOPY, 1},
        {IPPROTO_IP, IP_MINTTL, 2},
};
static const struct option udp[] = {
        {IPPROTO_IP, IP_MULTICAST_ALL, 0}, {IPPROTO_IP, IP_RECVOPTS, 1},    {IPPROTO_IP, IP_RECVFRAGSIZE, 1},
        {IPPROTO_UDP, UDP_CORK, 1},        {IPPROTO_UDP, UDP_SEGMENT, 900}, {IPPROTO_UDP, UDP_GRO, 1},
        {IPPROTO_IP, IP_TRANSPARENT, 1},
};
static const struct option udp6[] = {
        {IPPROTO_IPV6, IPV6_FREEBIND, 1},    {IPPROTO_IPV6, IPV6_DONTFRAG, 1},
        {IPPROTO_IPV6, IPV6_RECVDSTOPTS, 1}, {IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0},
        {IPPROTO_IPV6, IPV6_MINHOPCOUNT, 2}, {IPPROTO_IPV6, IPV6_MULTICAST_IF, 1},
};
static const struct option route[] = {
        {SOL_NETLINK, NETLINK_PKTINFO, 1}, {SOL_NETLINK, NETLINK_NO_ENOBUFS, 1},     {SOL_NETLINK, NETLINK_EXT_ACK, 1},
        {SOL_NETLINK, NETLINK_CAP_ACK, 1}, {SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1},
};

static void set_all(int fd, const struct option *o, size_t n)
{
        for (size_t i = 0; i < n; i++)
                set_option(fd, o[i].level, o[i].name, o[i].value);
}

static void check_all(int fd, const struct option *o, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (get_option(fd, o[i].level, o[i].name) != o[i].value)
                        victim_fail("option %d of level %d is %d, not %d", o[i].name, o[i].level,
                                    get_option(fd, o[i].level, o[i].name), o[i].value);
}
#define SET(fd, table) set_all(fd, table, sizeof(table) / sizeof((table)[0]))
#define SAME(fd, table) check_all(fd, table, sizeof(table) / sizeof((table)[0]))

/* Lets pass what begins with 'y'. */
static void filter(int fd)
{
        struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ, 'y', 0, 1),
                                     BPF_STMT(BPF_RET, 0xffff), BPF_STMT(BPF_RET, 0)};
        struct sock_fprog program = {4, code};

        CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
        set_option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1);
}

static int in_group(const struct sockaddr_in *group)
{
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = group->sin_port};
        struct ip_mreqn m = {.imr_multiaddr = group->sin_addr, .imr_ifindex = 1};

        CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0 &&
              setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) == 0);
        return fd;
}

int main(void)
{
        int t = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0),
            six = socket(AF_INET6, SOCK_DGRAM, 0), lite = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE),
            far = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0),
            nl = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), pair[2];
        struct sockaddr_in elsewhere = {.sin_family = AF_INET, .sin_addr.s_addr = 0x0708090a, .sin_port = 0x0903},
                           group = {.sin_family = AF_INET, .sin_addr.s_addr = 0x040302e1, .sin_port = 0xb315},
                           lo = LOOPBACK;
        struct sockaddr_nl id = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK, .nl_pid = 12345};
        struct ipv6_mreq m6 = {.ipv6mr_interface = 1, .ipv6mr_multiaddr.s6_addr = {0xff, 0x11, [15] = 0x42}};

        SET(t, tcp);
        SET(u, udp);
        SET(six, udp6);
        SET(nl, route);
        CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof(m6)) == 0);
        if (lite >= 0)
                set_option(lite, IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV, 20);
        CHECK(setsockopt(far, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
        set_option(far, IPPROTO_IP, IP_FREEBIND, 1);
        CHECK(bind(far, (struct sockaddr *)&elsewhere, sizeof(elsewhere)) == 0);
        CHECK(bind(nl, (struct sockaddr *)&id, sizeof(id)) == 0);
        set_option(nl, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, 33);
        CHECK(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &lo.sin_addr, sizeof(lo.sin_addr)) == 0);
        int member = in_group(&group);
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
        say(pair[0], "before the filter");
        filter(pair[1]);
        victim_ready();
        victim_wait();
        SAME(t, tcp);
        SAME(u, udp);
        SAME(six, udp6);
        SAME(nl, route);
        CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &m6, sizeof(m6)) == 0);
        CHECK(lite < 0 || get_option(lite, IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV) == 20);
        char name[16] = "";
        socklen_t n = sizeof(name);
        CHECK(getsockopt(far, SOL_SOCKET, SO_BINDTODEVICE, name, &n) == 0 && strcmp(name, "lo") == 0 &&
              own_name(far).sin_addr.s_addr == elsewhere.sin_addr.s_addr);
        uint32_t bits[4] = {0};
        n = sizeof(bits);
        CHECK(getsockopt(nl, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, bits, &n) == 0 && bits[0] == RTMGRP_LINK &&
              bits[1] == 1);
        CHECK(sendto(from, "to all", 6, 0, (struct sockaddr *)&group, sizeof(group)) == 6);
        expect(member, "to all");
        expect(pair[1], "before the filter");
        say(pair[0], "no");
        say(pair[0], "yes");
        expect(pair[1], "yes");
        CHECK(setsockopt(pair[1], SOL_SOCKET, SO_DETACH_FILTER, &n, sizeof(n)) == -1 && errno == EPERM);
        victim_pass();
}
