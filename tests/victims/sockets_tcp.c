/* TCP inside the tree: a listener, loopback pairs with data in both queues, one half-closed; UDP. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "victim.h"

#define BIG 3000000

int main(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, me, peer;
        socklen_t n = sizeof(a);
        int l = socket(AF_INET, SOCK_STREAM, 0), c[3], s[3], one = 1;
        static char big[BIG], got[BIG];

        CHECK(bind(l, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(l, 7) == 0 &&
              getsockname(l, (struct sockaddr *)&a, &n) == 0);
        for (int i = 0; i < 3; i++) {
                c[i] = socket(AF_INET, SOCK_STREAM, 0);
                CHECK(connect(c[i], (struct sockaddr *)&a, sizeof(a)) == 0);
                s[i] = accept(l, NULL, NULL);
                CHECK(s[i] >= 0);
        }
        setsockopt(c[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        for (int i = 0; i < BIG; i++)
                big[i] = (char)(i * 31 + i / 1000);
        CHECK(send(c[0], "request", 7, 0) == 7 && send(s[0], "reply", 5, 0) == 5);
        ssize_t sent = 0, k; /* more than the receiver's buffer takes */
        while (sent < BIG && (k = send(c[1], big + sent, (size_t)(BIG - sent), MSG_DONTWAIT)) > 0)
                sent += k;
        CHECK(send(c[2], "bye", 3, 0) == 3 && shutdown(c[2], SHUT_WR) == 0);
        int u = socket(AF_INET, SOCK_DGRAM, 0), u2 = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in ua = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        CHECK(bind(u, (struct sockaddr *)&ua, sizeof(ua)) == 0 && getsockname(u, (struct sockaddr *)&ua, &n) == 0);
        CHECK(connect(u2, (struct sockaddr *)&ua, sizeof(ua)) == 0);
        n = sizeof(me);
        CHECK(getsockname(c[0], (struct sockaddr *)&me, &n) == 0);
        victim_ready();
        victim_wait();
        char buf[32] = {0};
        CHECK(recv(s[0], buf, 32, 0) == 7 && memcmp(buf, "request", 7) == 0);
        CHECK(recv(c[0], buf, 32, 0) == 5 && memcmp(buf, "reply", 5) == 0);
        CHECK(recv(s[1], got, (size_t)sent, MSG_WAITALL) == sent && memcmp(got, big, (size_t)sent) == 0);
        CHECK(recv(s[2], buf, 32, 0) == 3 && recv(s[2], buf, 32, 0) == 0);
        CHECK(send(s[2], "still", 5, 0) == 5 && recv(c[2], buf, 32, 0) == 5);
        CHECK(getpeername(s[0], (struct sockaddr *)&peer, &n) == 0 && peer.sin_port == me.sin_port);
        int opt = 0;
        n = sizeof(opt);
        CHECK(getsockopt(c[0], IPPROTO_TCP, TCP_NODELAY, &opt, &n) == 0 && opt);
        CHECK(send(c[0], "on", 2, 0) == 2 && recv(s[0], buf, 32, 0) == 2);
        int c4 = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(c4, (struct sockaddr *)&a, sizeof(a)) == 0 && accept(l, NULL, NULL) >= 0);
        CHECK(send(u2, "ping", 4, 0) == 4 && recv(u, buf, 32, 0) == 4);
        victim_pass();
}
