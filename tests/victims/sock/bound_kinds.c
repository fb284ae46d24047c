/* What a socket was bound by and has given up since: one of several at a port (SO_REUSEPORT), an address that is not here (IP_FREEBIND);
 * buffer sizes that are fixed though they are the usual ones (SO_BUF_LOCK); UDP sockets that receive or send no more; netlink sockets
 * with and without a number, and with a peer. */
#include <linux/netlink.h>

#include "../sock.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

static void bind_shared(int pair[2], int type)
{
        struct sockaddr_in a = LOOPBACK;
        socklen_t n = sizeof(a);

        for (int i = 0; i < 2; i++) {
                pair[i] = socket(AF_INET, type, 0);
                set_option(pair[i], SOL_SOCKET, SO_REUSEPORT, 1);
                CHECK(bind(pair[i], (struct sockaddr *)&a, n) == 0 &&
                      getsockname(pair[i], (struct sockaddr *)&a, &n) == 0);
                CHECK(type != SOCK_STREAM || listen(pair[i], 4) == 0);
        }
        set_option(pair[0], SOL_SOCKET, SO_REUSEPORT, 0);
}

static void check_shared(const int pair[2])
{
        CHECK(get_option(pair[0], SOL_SOCKET, SO_REUSEPORT) == 0 && get_option(pair[1], SOL_SOCKET, SO_REUSEPORT) == 1);
        CHECK(own_name(pair[0]).sin_port == own_name(pair[1]).sin_port);
}

static int udp_at_loopback(void)
{
        struct sockaddr_in a = LOOPBACK;
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

        CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
        return fd;
}

static void connect_to(int fd, int other)
{
        struct sockaddr_in a = own_name(other);

        CHECK(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
}

static int netlink(uint32_t number)
{
        struct sockaddr_nl own = {.nl_family = AF_NETLINK, .nl_pid = number};
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);

        CHECK(number == 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) == 0);
        return fd;
}

static uint32_t number_of(int fd)
{
        struct sockaddr_nl own;
        socklen_t n = sizeof(own);

        CHECK(getsockname(fd, (struct sockaddr *)&own, &n) == 0);
        return own.nl_pid;
}

int main(void)
{
        static const int locks[] = {0, 1, 2, 3};
        struct sockaddr_in absent = {.sin_family = AF_INET, .sin_addr.s_addr = 0x010200c0, .sin_port = 0x0a0b};
        struct sockaddr_nl peer = {.nl_family = AF_NETLINK, .nl_pid = 4242};
        int listeners[2], datagrams[2], locked[8], talks, c, s;

        bind_shared(listeners, SOCK_STREAM);
        bind_shared(datagrams, SOCK_DGRAM);
        struct sockaddr_in a = own_name(listeners[0]);
        c = tcp_connect(&a);
        struct pollfd p[] = {{listeners[0], POLLIN, 0}, {listeners[1], POLLIN, 0}};
        CHECK(poll(p, 2, 5000) == 1);
        s = accept(p[0].revents ? listeners[0] : listeners[1], NULL, NULL);
        int away = socket(AF_INET, SOCK_DGRAM, 0), away_listens = socket(AF_INET, SOCK_STREAM, 0);
        for (int i = 0; i < 2; i++) {
                int fd = i ? away : away_listens;
                set_option(fd, IPPROTO_IP, IP_FREEBIND, 1);
                CHECK(bind(fd, (struct sockaddr *)&absent, sizeof(absent)) == 0);
                set_option(fd, IPPROTO_IP, IP_FREEBIND, 0);
        }
        CHECK(listen(away_listens, 1) == 0);
        for (int i = 0; i < 8; i++) {
                locked[i] = socket(AF_INET, i < 4 ? SOCK_STREAM : SOCK_DGRAM, 0);
                set_option(locked[i], SOL_SOCKET, SO_BUF_LOCK, locks[i % 4]);
        }
        int sends = udp_at_loopback(), receives = udp_at_loopback(), neither = socket(AF_INET, SOCK_DGRAM, 0);
        connect_to(sends, receives);
        connect_to(receives, sends);
        say(receives, "queued");
        say(sends, "queued, too");
        CHECK(shutdown(sends, SHUT_RD) == 0 && shutdown(receives, SHUT_WR) == 0);
        CHECK(shutdown(neither, SHUT_RDWR) == -1 && errno == ENOTCONN); /* and so it is all the same */
        int numbered = netlink(4242), unnumbered = netlink(0);
        talks = netlink(4243);
        CHECK(connect(talks, (struct sockaddr *)&peer, sizeof(peer)) == 0);
        victim_ready();
        victim_wait();
        check_shared(listeners);
        check_shared(datagrams);
        say(c, "to one of them");
        expect(s, "to one of them");
        CHECK(close(listeners[1]) == 0);
        CHECK(tcp_connect(&a) >= 0 && accept(listeners[0], NULL, NULL) >= 0);
        CHECK(own_name(away).sin_addr.s_addr == absent.sin_addr.s_addr && own_name(away).sin_port == absent.sin_port);
        CHECK(own_name(away_listens).sin_addr.s_addr == absent.sin_addr.s_addr);
        CHECK(get_option(away, IPPROTO_IP, IP_FREEBIND) == 0);
        for (int i = 0; i < 8; i++)
                if (get_option(locked[i], SOL_SOCKET, SO_BUF_LOCK) != locks[i % 4])
                        victim_fail("lock %d: %d, not %d", i, get_option(locked[i], SOL_SOCKET, SO_BUF_LOCK),
                                    locks[i % 4]);
        expect(sends, "queued");
        expect(receives, "queued, too");
        say(sends, "still");
        expect(receives, "still");
        CHECK(send(receives, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
        struct pollfd ended = {sends, POLLRDHUP, 0};
        CHECK(poll(&ended, 1, 0) == 1 && ended.revents == POLLRDHUP);
        struct sockaddr_in anywhere = own_name(receives);
        CHECK(sendto(neither, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&anywhere, sizeof(anywhere)) == -1 &&
              errno == EPIPE);
        CHECK(number_of(numbered) == 4242 && number_of(unnumbered) == 0);
        say(talks, "by its peer");
        expect(numbered, "by its peer");
        victim_pass();
}
