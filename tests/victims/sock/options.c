/* Socket options: buffers, timeouts, linger, keepalive and its times, nodelay, cork with a byte queued behind it, reuse, priority,
 * tos, v6only, what messages about datagrams are asked for. */
#include "../sock.h"

struct option {
        const char *name;
        int level, id, value;
};

static const struct option tcp_options[] = {
        {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
        {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},
        {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77},
        {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 11},
        {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 4},
        {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
        {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
        {"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},
        {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
        {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
};
static const struct option listen_options[] = {
        {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
        {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1},
        {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
        {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
};
static const struct option udp_options[] = {
        {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1},
        {"IP_TTL", IPPROTO_IP, IP_TTL, 33},
        {"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1},
        {"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1},
        {"IP_MULTICAST_LOOP", IPPROTO_IP, IP_MULTICAST_LOOP, 0},
        {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1},
        {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1},
        {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 1},
        {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
        {"SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL, 1},
};
static const struct option udp6_options[] = {
        {"IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY, 1},
        {"IPV6_RECVPKTINFO", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},
        {"IPV6_RECVERR", IPPROTO_IPV6, IPV6_RECVERR, 1},
        {"IPV6_UNICAST_HOPS", IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9},
        {"IPV6_MULTICAST_LOOP", IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0},
        {"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 1},
};
static const struct option unix_options[] = {
        {"SO_PASSCRED", SOL_SOCKET, SO_PASSCRED, 1},
        {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 9},
        {"SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0},
};

static int get(int fd, const struct option *o)
{
        int v = -1;
        socklen_t n = sizeof(v);

        CHECK(getsockopt(fd, o->level, o->id, &v, &n) == 0);
        return v;
}

static void set_all(int fd, const struct option *o, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (setsockopt(fd, o[i].level, o[i].id, &o[i].value, sizeof(int)) != 0 || get(fd, &o[i]) != o[i].value)
                        victim_fail("setting %s", o[i].name);
}

static void check_all(int fd, const struct option *o, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (get(fd, &o[i]) != o[i].value)
                        victim_fail("%s is %d, not %d", o[i].name, get(fd, &o[i]), o[i].value);
}
#define SET(fd, t) set_all(fd, t, sizeof(t) / sizeof((t)[0]))
#define SAME(fd, t) check_all(fd, t, sizeof(t) / sizeof((t)[0]))

int main(void)
{
        int t[2], u = socket(AF_INET, SOCK_DGRAM, 0), s[2], buffer = 50000;
        struct sockaddr_in a = LOOPBACK;
        int l = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), corked[2], one = 1, zero = 0;
        struct timeval tv = {7, 500000}, now;
        struct linger lg = {1, 13}, lg2;
        socklen_t n;

        tcp_pair(t);
        SET(t[0], tcp_options);
        SET(l, listen_options);
        CHECK(bind(l, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(l, 3) == 0);
        SET(u, udp_options);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        SET(s[0], unix_options);
        CHECK(setsockopt(t[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0 &&
              setsockopt(s[1], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0);
        CHECK(setsockopt(t[1], SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)) == 0);
        CHECK(setsockopt(s[1], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) == 0 &&
              setsockopt(u, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) == 0);
        if (six >= 0)
                SET(six, udp6_options);
        tcp_pair(corked);
        say(corked[0], "queued");
        CHECK(setsockopt(corked[0], IPPROTO_TCP, TCP_CORK, &one, sizeof(one)) == 0);
        CHECK(setsockopt(corked[1], SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) == 0);
        victim_ready();
        victim_wait();
        SAME(t[0], tcp_options);
        SAME(l, listen_options);
        SAME(u, udp_options);
        SAME(s[0], unix_options);
        n = sizeof(now);
        CHECK(getsockopt(t[1], SOL_SOCKET, SO_RCVTIMEO, &now, &n) == 0 && now.tv_sec == 7 && now.tv_usec == 500000);
        CHECK(getsockopt(s[1], SOL_SOCKET, SO_SNDTIMEO, &now, &n) == 0 && now.tv_sec == 7);
        n = sizeof(lg2);
        CHECK(getsockopt(t[1], SOL_SOCKET, SO_LINGER, &lg2, &n) == 0 && lg2.l_onoff == 1 && lg2.l_linger == 13);
        struct option sndbuf = {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 0},
                      rcvbuf = {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 0}, cork = {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 0};
        CHECK(get(s[1], &sndbuf) == 100000 && get(u, &rcvbuf) == 100000 && get(corked[1], &rcvbuf) == 100000);
        if (six >= 0)
                SAME(six, udp6_options);
        char c[8];
        CHECK(get(corked[0], &cork) == 1 && recv(corked[1], c, sizeof(c), MSG_DONTWAIT) == 6);
        say(corked[0], "later");
        CHECK(setsockopt(corked[0], IPPROTO_TCP, TCP_CORK, &zero, sizeof(zero)) == 0);
        expect(corked[1], "later");
        victim_pass();
}
