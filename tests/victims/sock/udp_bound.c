/* UDP without anything queued: bound and connected sockets keep their ports and peers. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_in a = LOOPBACK, c, now;
        socklen_t n = sizeof(a);
        int u = socket(AF_INET, SOCK_DGRAM, 0), k = socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(bind(u, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(u, (struct sockaddr *)&a, &n) == 0);
        CHECK(connect(k, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(k, (struct sockaddr *)&c, &n) == 0);
        victim_ready();
        victim_wait();
        CHECK(getsockname(k, (struct sockaddr *)&now, &n) == 0 && now.sin_port == c.sin_port);
        CHECK(getpeername(k, (struct sockaddr *)&now, &n) == 0 && now.sin_port == a.sin_port);
        say(k, "ping");
        expect(u, "ping");
        CHECK(sendto(u, "pong", 4, 0, (struct sockaddr *)&c, sizeof(c)) == 4);
        expect(k, "pong");
        victim_pass();
}
