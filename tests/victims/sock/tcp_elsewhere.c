/* A connection that leaves the tree, to a port at which the tree listens itself under another address: it is closed as by its peer, and
 * nothing comes to the listener. */
#include "../sock.h"

#ifndef TCP_REPAIR_OFF_NO_WP
#define TCP_REPAIR_OFF_NO_WP (-1)
#endif

int main(void)
{
        struct sockaddr_in a = LOOPBACK, own = LOOPBACK, away = LOOPBACK;
        int l = tcp_listen(&a, 4), c = socket(AF_INET, SOCK_STREAM, 0), on = 1, waiting;
        char byte;

        /* As if somebody were there. */
        if (setsockopt(c, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) < 0)
                victim_skip("no TCP_REPAIR here");
        away.sin_addr.s_addr = 0x0900007f;
        away.sin_port = a.sin_port;
        CHECK(bind(c, (struct sockaddr *)&own, sizeof(own)) == 0 &&
              connect(c, (struct sockaddr *)&away, sizeof(away)) == 0);
        set_option(c, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
        waiting = tcp_connect(&a);
        victim_ready();
        victim_wait();
        CHECK(recv(c, &byte, 1, MSG_DONTWAIT) == 0 || errno == EAGAIN);
        int s = tcp_accept_from(l, waiting);
        say(waiting, "here");
        expect(s, "here");
        struct pollfd p = {l, POLLIN, 0};
        CHECK(poll(&p, 1, 100) == 0);
        victim_pass();
}
