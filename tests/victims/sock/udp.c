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
        victim_ready();
        victim_wait();
        CHECK(recvfrom(u, buf, 32, MSG_DONTWAIT, (struct sockaddr *)&from, &n) == 5 && memcmp(buf, "first", 5) == 0 &&
              from.sin_port == c.sin_port);
        CHECK(recv(u, buf, 32, MSG_DONTWAIT) == 0);
        expect(u, "third");
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
