/* TCP connections: half-closed either way with data, closed by the peer, bound only, never connected, urgent byte, IPv6. */
#include "../sock.h"

int main(void)
{
        int w[2], r[2], both[2], gone[2], six[2] = {-1, -1}, fresh = socket(AF_INET, SOCK_STREAM, 0),
                                          bound = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = LOOPBACK, now;
        struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        socklen_t n = sizeof(a), n6 = sizeof(b);

        signal(SIGPIPE, SIG_IGN);
        tcp_pair(w);
        tcp_pair(r);
        tcp_pair(both);
        tcp_pair(gone);
        int l6 = socket(AF_INET6, SOCK_STREAM, 0);
        if (bind(l6, (struct sockaddr *)&b, sizeof(b)) == 0 && listen(l6, 1) == 0 &&
            getsockname(l6, (struct sockaddr *)&b, &n6) == 0) {
                six[0] = socket(AF_INET6, SOCK_STREAM, 0);
                CHECK(connect(six[0], (struct sockaddr *)&b, sizeof(b)) == 0 && (six[1] = accept(l6, NULL, NULL)) >= 0);
                say(six[0], "six");
        }
        CHECK(bind(bound, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(bound, (struct sockaddr *)&a, &n) == 0);
        say(w[0], "request");
        CHECK(shutdown(w[0], SHUT_WR) == 0);
        CHECK(shutdown(r[0], SHUT_RD) == 0);
        say(both[1], "queued");
        usleep(20000);
        CHECK(shutdown(both[0], SHUT_RDWR) == 0);
        say(gone[0], "bye");
        close(gone[0]);
        usleep(20000);
        victim_ready();
        victim_wait();
        expect(w[1], "request");
        expect(w[1], "");
        say(w[1], "response");
        expect(w[0], "response");
        CHECK(send(w[0], "x", 1, 0) == -1 && errno == EPIPE);
        char c;
        CHECK(recv(r[0], &c, 1, MSG_DONTWAIT) == 0);
        say(r[0], "writes still");
        expect(r[1], "writes still");
        expect(both[0], "queued");
        expect(both[0], "");
        expect(both[1], "");
        expect(gone[1], "bye");
        expect(gone[1], "");
        close(w[1]);
        expect(w[0], "");
        CHECK(getsockname(bound, (struct sockaddr *)&now, &n) == 0 && now.sin_port == a.sin_port &&
              listen(bound, 2) == 0);
        CHECK(connect(fresh, (struct sockaddr *)&a, sizeof(a)) == 0);
        int s = accept(bound, NULL, NULL);
        say(fresh, "fresh");
        expect(s, "fresh");
        if (six[1] >= 0) {
                expect(six[1], "six");
                say(six[1], "back");
                expect(six[0], "back");
        }
        victim_pass();
}
