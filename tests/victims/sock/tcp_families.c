/* TCP connections whose ends are of IPv4 and IPv6: open with data in both directions, with more than the receiver takes, half closed by
 * either side, closed by both, not accepted yet; the listener there or gone; and the client of IPv6 at a listener of IPv4. */
#include <stdbool.h>

#include "../sock.h"

enum { OPEN, FULL, CLIENT_SHUT, SERVER_SHUT, BOTH_SHUT, LISTENER_GONE, SIX_TO_FOUR, KINDS };

struct connection {
        int client, server;
        size_t sent;
        struct sockaddr_storage names[4];
};

static struct sockaddr_in6 mapped(uint16_t port)
{
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = port};

        a.sin6_addr.s6_addr[10] = a.sin6_addr.s6_addr[11] = 0xff;
        a.sin6_addr.s6_addr[12] = 127, a.sin6_addr.s6_addr[15] = 1;
        return a;
}

static int listen_six(uint16_t *port)
{
        struct sockaddr_in6 a = {.sin6_family = AF_INET6};
        socklen_t n = sizeof(a);
        int l = socket(AF_INET6, SOCK_STREAM, 0);

        set_option(l, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        CHECK(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 16) == 0 &&
              getsockname(l, (struct sockaddr *)&a, &n) == 0);
        *port = a.sin6_port;
        return l;
}

static void remember(struct connection *c)
{
        int fds[] = {c->client, c->server};

        memset(c->names, 0, sizeof(c->names));
        for (int i = 0; i < 4; i++) {
                socklen_t n = i < 2 || c->names[0].ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                         : sizeof(struct sockaddr_in);
                if (i < 2)
                        CHECK(getsockname(fds[i], (struct sockaddr *)&c->names[i], &n) == 0);
                else { /* the option takes no more room than there is to tell */
                        n = c->names[i - 2].ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                  : sizeof(struct sockaddr_in);
                        CHECK(getsockopt(fds[i - 2], SOL_SOCKET, SO_PEERNAME, &c->names[i], &n) == 0);
                }
        }
}

static void check_names(struct connection *c, int kind)
{
        struct connection now = *c;

        remember(&now);
        if (memcmp(now.names, c->names, sizeof(now.names)) != 0)
                victim_fail("connection %d: other addresses", kind);
}

static size_t fill(int fd)
{
        char block[16384] = {0};
        size_t sum = 0;

        for (int idle = 0; idle < 20; idle++, usleep(1000))
                for (ssize_t n; (n = send(fd, block, sizeof(block), MSG_DONTWAIT)) > 0; idle = 0)
                        sum += (size_t)n;
        return sum;
}

static void drain(int fd, size_t sum)
{
        char block[16384];

        while (sum > 0) {
                ssize_t n = recv(fd, block, sizeof(block) < sum ? sizeof(block) : sum, 0);
                CHECK(n > 0);
                sum -= (size_t)n;
        }
}

static bool ends(int fd)
{
        char byte;

        return recv(fd, &byte, 1, 0) == 0;
}

static void await_closed(int fd)
{
        struct tcp_info info;
        socklen_t n = sizeof(info);

        for (int i = 0; i < 2000; i++, usleep(1000)) {
                CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0);
                if (info.tcpi_state == TCP_CLOSE)
                        return;
        }
        victim_fail("descriptor %d is not closed", fd);
}

static struct connection connect_kind(int kind)
{
        struct connection c = {0};
        struct sockaddr_in four = LOOPBACK;
        uint16_t port = 0;
        int l;

        if (kind == SIX_TO_FOUR) {
                l = tcp_listen(&four, 4);
                struct sockaddr_in6 to = mapped(four.sin_port);
                c.client = socket(AF_INET6, SOCK_STREAM, 0);
                CHECK(connect(c.client, (struct sockaddr *)&to, sizeof(to)) == 0);
        } else {
                l = listen_six(&port);
                four.sin_port = port;
                c.client = tcp_connect(&four);
        }
        c.server = accept(l, NULL, NULL);
        CHECK(c.server >= 0);
        if (kind == LISTENER_GONE || kind == FULL)
                close(l);
        return c;
}

static void set_up(struct connection *c, int kind)
{
        *c = connect_kind(kind);
        say(c->client, "up");
        say(c->server, "down");
        if (kind == FULL)
                c->sent = fill(c->client);
        if (kind == CLIENT_SHUT || kind == BOTH_SHUT)
                CHECK(shutdown(c->client, SHUT_WR) == 0);
        if (kind == BOTH_SHUT)
                drain(c->server, 2);
        if (kind == SERVER_SHUT || kind == BOTH_SHUT)
                CHECK(shutdown(c->server, SHUT_WR) == 0);
        if (kind == BOTH_SHUT) {
                drain(c->client, 4);
                await_closed(c->client);
                await_closed(c->server);
        }
        remember(c);
}

static void check(struct connection *c, int kind)
{
        check_names(c, kind);
        if (kind == BOTH_SHUT) {
                CHECK(ends(c->client) && ends(c->server));
                await_closed(c->client);
                await_closed(c->server);
                return;
        }
        drain(c->server, 2);
        expect(c->client, "down");
        drain(c->server, c->sent);
        if (kind == CLIENT_SHUT)
                CHECK(ends(c->server) && send(c->client, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
        else {
                say(c->client, "more");
                expect(c->server, "more");
        }
        if (kind == SERVER_SHUT)
                CHECK(ends(c->client) && send(c->server, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
        else {
                say(c->server, "less");
                expect(c->client, "less");
        }
}

int main(void)
{
        struct connection list[KINDS];
        uint16_t port;
        int l = listen_six(&port), silent, talks, s;
        struct sockaddr_in four = LOOPBACK;

        for (int i = 0; i < KINDS; i++)
                set_up(&list[i], i);
        four.sin_port = port;
        silent = tcp_connect(&four);
        talks = tcp_connect(&four);
        say(talks, "early");
        victim_ready();
        victim_wait();
        for (int i = 0; i < KINDS; i++)
                check(&list[i], i);
        s = accept(l, NULL, NULL);
        say(silent, "late");
        expect(s, "late");
        s = accept(l, NULL, NULL);
        expect(s, "early");
        say(s, "answer");
        expect(talks, "answer");
        victim_pass();
}
