/* TCP listeners: a backlog of established connections, wildcard and IPv6.  With PENDING_DATA (tcp_listen_data.c) there is data
 * in some of them, and one is closed by its client. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_in a = LOOPBACK, w = {.sin_family = AF_INET}, peer, me;
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        socklen_t n = sizeof(peer), n6 = sizeof(six);
        int l = tcp_listen(&a, 16), lw = tcp_listen(&w, 4), l6 = socket(AF_INET6, SOCK_STREAM, 0), c[4];
        int have6 = bind(l6, (struct sockaddr *)&six, sizeof(six)) == 0 && listen(l6, 4) == 0 &&
                    getsockname(l6, (struct sockaddr *)&six, &n6) == 0;

        for (int i = 0; i < 4; i++)
                c[i] = tcp_connect(&a);
#ifdef PENDING_DATA
        say(c[0], "zero");
        say(c[1], "one, closed");
        close(c[1]);
#endif
        usleep(20000);
        victim_ready();
        victim_wait();
        int s[4];
        for (int i = 0; i < 4; i++)
                CHECK((s[i] = accept(l, (struct sockaddr *)&peer, &n)) >= 0);
#ifndef PENDING_DATA
        say(c[0], "zero");
        say(c[1], "one, closed");
        close(c[1]);
#endif
        expect(s[0], "zero");
        expect(s[1], "one, closed");
        expect(s[1], "");
        n = sizeof(me);
        CHECK(getsockname(c[3], (struct sockaddr *)&me, &n) == 0 &&
              getpeername(s[3], (struct sockaddr *)&peer, &n) == 0 && me.sin_port == peer.sin_port);
        say(s[2], "hello");
        expect(c[2], "hello");
        say(c[3], "hi");
        expect(s[3], "hi");
        CHECK(fcntl(l, F_SETFL, O_NONBLOCK) == 0 && accept(l, NULL, NULL) == -1 && errno == EAGAIN);
        w.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int cw = tcp_connect(&w), sw = accept(lw, NULL, NULL);
        say(cw, "wild");
        expect(sw, "wild");
        if (have6) {
                int c6 = socket(AF_INET6, SOCK_STREAM, 0);
                CHECK(connect(c6, (struct sockaddr *)&six, sizeof(six)) == 0);
                int s6 = accept(l6, NULL, NULL);
                say(c6, "six");
                expect(s6, "six");
        }
        victim_pass();
}
