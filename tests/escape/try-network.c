/* Sockets: raw ones, families that are not namespaced, the host's and other sandboxes'. */
#include "try.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static enum outcome raw_sockets(const char *arg)
{
        enum outcome o = judge("raw ICMP", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));

        o = worst(o, judge("raw IP", socket(AF_INET, SOCK_RAW, IPPROTO_RAW)));
        o = worst(o, judge("raw ICMPv6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)));
        o = worst(o, judge("raw, non-blocking", socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP)));
        o = worst(o, judge("AF_PACKET", socket(AF_PACKET, SOCK_RAW, htons(3))));
        return worst(o, judge("AF_PACKET datagram", socket(AF_PACKET, SOCK_DGRAM, htons(3))));
}

static enum outcome odd_families(const char *arg)
{
        enum outcome o = HELD;

        for (int family = 0; family < 64; family++)
                for (int type = SOCK_STREAM; type <= 6; type++) {
                        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
                                continue;
                        int fd = socket(family, type, 0);
                        if (fd >= 0) {
                                printf("family %d ", family);
                                o = judge("socket", fd);
                                close(fd);
                        }
                }
        o = worst(o, judge("vsock, high bits set", syscall(SYS_socket, 0x100000000UL | 40, SOCK_STREAM, 0)));
        o = worst(o, judge("SCTP", socket(AF_INET, SOCK_SEQPACKET, 132)));
        return worst(o, judge("DCCP", socket(AF_INET, 6, 33)));
}

static enum outcome netlink(const char *arg)
{
        enum outcome o = HELD;

        for (int protocol = 1; protocol < 32; protocol++) {
                int fd = socket(AF_NETLINK, SOCK_RAW, protocol);
                if (fd >= 0) {
                        printf("protocol %d ", protocol);
                        o = judge("netlink", fd);
                        close(fd);
                }
        }
        return o;
}

/* Taking the interface down, adding a route: both need CAP_NET_ADMIN. */
static enum outcome configure(const char *arg)
{
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct ifreq request = {.ifr_name = "lo"};
        enum outcome o = judge("lo down", ioctl(fd, SIOCSIFFLAGS, &request));
        struct {
                struct nlmsghdr h;
                struct ifinfomsg i;
        } m = {{sizeof(m), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}, {0}};
        int nl = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        char reply[1024] = "";

        if (nl >= 0 && send(nl, &m, sizeof(m), 0) > 0 && recv(nl, reply, sizeof(reply), 0) > 0) {
                struct nlmsgerr *e = NLMSG_DATA((struct nlmsghdr *)reply);
                errno = -e->error;
                o = worst(o, judge("adding an interface", e->error ? -1 : 0));
        }
        return o;
}

/* arg: name of an abstract socket on which the host listens. */
static enum outcome abstract_socket(const char *arg)
{
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        strncpy(addr.sun_path + 1, arg, sizeof(addr.sun_path) - 2);
        socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(arg));
        return judge("abstract socket of the host", connect(fd, (struct sockaddr *)&addr, n));
}

/* arg: path of a socket on the host. */
static enum outcome path_socket(const char *arg)
{
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

        strncpy(addr.sun_path, arg, sizeof(addr.sun_path) - 1);
        return judge("socket of the keeper", connect(fd, (struct sockaddr *)&addr, sizeof(addr)));
}

/* arg: a TCP port on which the host's loopback listens. */
static enum outcome host_loopback(const char *arg)
{
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(arg))};
        enum outcome o = HELD;
        static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "0.0.0.0", "169.254.169.254", "10.0.2.2"};

        for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
                int fd = socket(AF_INET, SOCK_STREAM, 0);
                inet_pton(AF_INET, hosts[i], &addr.sin_addr);
                int r = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
                o = worst(o, judge(hosts[i], r));
                close(fd);
        }
        return o;
}

const struct attempt network_attempts[] = {
        {"raw_sockets", raw_sockets},
        {"odd_families", odd_families},
        {"netlink", netlink},
        {"configure", configure},
        {"abstract_socket", abstract_socket},
        {"path_socket", path_socket},
        {"host_loopback", host_loopback},
        {0},
};
