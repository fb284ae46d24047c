/* UDP: bound, connected, queued datagrams with their senders and their order, IPv6, unbound. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_in a = LOOPBACK, c, from;
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        socklen_t n = sizeof(a), n6 = sizeof(six);
        int u = socket(AF_INET, SOCK_DGRAM, 0), k = socket(AF_INET, SOCK_DGRAM, 0),
            un = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), s6 = socket(AF_INET6, SOCK_DGRAM, 0);
        char buf[32];

        CHECK(bind(u, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(u, (struct sockaddr *)&a, &n) == 0);
        CHECK(connect(k, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(k, (struct sockaddr *)&c, &n) == 0);
        int have6 = bind(s6, (struct sockaddr *)&six, sizeof(six)) == 0 &&
                    getsockname(s6, (struct sockaddr *)&six, &n6) == 0;
        say(k, "first");
        CHECK(send(k, "", 0, 0) == 0);
        say(k, "third");
        /* A sender that is gone, and one of the other family. */
        struct sockaddr_in gone = LOOPBACK;
        struct sockaddr_in6 both = {.sin6_family = AF_INET6}, from6;
        socklen_t nb = sizeof(both);
        int g = socket(AF_INET, SOCK_DGRAM, 0), dual = socket(AF_INET6, SOCK_DGRAM, 0);
        int have_dual = bind(dual, (struct sockaddr *)&both, sizeof(both)) == 0 &&
                        getsockname(dual, (struct sockaddr *)&both, &nb) == 0;
        CHECK(bind(g, (struct sockaddr *)&gone, sizeof(gone)) == 0 &&
              getsockname(g, (struct sockaddr *)&gone, &n) == 0 &&
              sendto(g, "ghost", 5, 0, (struct sockaddr *)&a, sizeof(a)) == 5 && close(g) == 0);
        if (have_dual) {
                struct sockaddr_in to = LOOPBACK;
                to.sin_port = both.sin6_port;
                CHECK(sendto(k, "mapped", 6, 0, (struct sockaddr *)&to, sizeof(to)) == 6);
        }
        victim_ready();
        victim_wait();
        CHECK(recvfrom(u, buf, 32, MSG_DONTWAIT, (struct sockaddr *)&from, &n) == 5 && memcmp(buf, "first", 5) == 0 &&
              from.sin_port == c.sin_port);
        CHECK(recv(u, buf, 32, MSG_DONTWAIT) == 0);
        expect(u, "third");
        CHECK(recvfrom(u, buf, 32, MSG_DONTWAIT, (struct sockaddr *)&from, &n) == 5 && from.sin_port == gone.sin_port);
        if (have_dual)
                CHECK(recvfrom(dual, buf, 32, MSG_DONTWAIT, (struct sockaddr *)&from6, &nb) == 6 &&
                      from6.sin6_port == c.sin_port && IN6_IS_ADDR_V4MAPPED(&from6.sin6_addr));
        CHECK(sendto(u, "reply", 5, 0, (struct sockaddr *)&c, sizeof(c)) == 5);
        expect(k, "reply");
        CHECK(sendto(un, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)) == 1);
        expect(u, "x");
        if (have6) {
                CHECK(sendto(s6, "self", 4, 0, (struct sockaddr *)&six, sizeof(six)) == 4);
                expect(s6, "self");
        }
        victim_pass();
}
