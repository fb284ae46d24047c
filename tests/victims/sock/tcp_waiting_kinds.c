/* Data in TCP connections that are not accepted yet, at listeners of several kinds: of IPv6 with a client of IPv4, everywhere; one that
 * wants data first; two that share a port. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_in p = LOOPBACK;
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        socklen_t n = sizeof(six);
        char byte;
        int l6 = socket(AF_INET6, SOCK_STREAM, 0);
        CHECK(bind(l6, (struct sockaddr *)&six, n) == 0 && listen(l6, 8) == 0 &&
              getsockname(l6, (struct sockaddr *)&six, &n) == 0);
        p.sin_port = six.sin6_port;
        p.sin_addr.s_addr = htonl(0x7f000009);
        six.sin6_addr = in6addr_loopback;
        int c4 = tcp_connect(&p), c6 = socket(AF_INET6, SOCK_STREAM, 0);
        CHECK(connect(c6, (struct sockaddr *)&six, sizeof(six)) == 0);
        say(c4, "four");
        say(c6, "six");
        int lazy = tcp_listen(&(struct sockaddr_in)LOOPBACK, 8);
        set_option(lazy, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30);
        p = (struct sockaddr_in)LOOPBACK;
        p.sin_port = own_name(lazy).sin_port;
        int silent = tcp_connect(&p), first = tcp_connect(&p);
        say(first, "data first");
        int shared[2];
        p.sin_port = 0;
        for (int i = 0; i < 2; i++) {
                n = sizeof(p);
                shared[i] = socket(AF_INET, SOCK_STREAM, 0);
                set_option(shared[i], SOL_SOCKET, SO_REUSEPORT, 1);
                CHECK(bind(shared[i], (struct sockaddr *)&p, n) == 0 &&
                      getsockname(shared[i], (struct sockaddr *)&p, &n) == 0);
        }
        CHECK(listen(shared[0], 8) == 0 && listen(shared[1], 8) == 0);
        int any[6];
        for (int i = 0; i < 6; i++) {
                any[i] = tcp_connect(&p);
                say(any[i], "any");
        }
        usleep(20000);
        victim_ready();
        victim_wait();
        int s4 = accept(l6, NULL, NULL), s6 = accept(l6, NULL, NULL);
        expect(s4, "four");
        expect(s6, "six");
        say(s4, "4");
        expect(c4, "4");
        say(s6, "6");
        expect(c6, "6");
        int sf = tcp_accept_from(lazy, first);
        expect(sf, "data first");
        say(silent, "at last");
        int ss = tcp_accept_from(lazy, silent);
        expect(ss, "at last");
        for (int i = 0, count = 0; i < 6; i++, count = 0) {
                struct pollfd both[] = {{.fd = shared[0], .events = POLLIN}, {.fd = shared[1], .events = POLLIN}};
                CHECK(poll(both, 2, 1000) > 0);
                int sa = accept(both[0].revents ? shared[0] : shared[1], NULL, NULL);
                CHECK(sa >= 0);
                expect(sa, "any");
                say(sa, "one");
                for (int k = 0; k < 6; k++)
                        count += any[k] >= 0 && recv(any[k], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
                CHECK(count == i + 1);
        }
        victim_pass();
}
