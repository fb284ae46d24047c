/* A part of a datagram that is held back (UDP_CORK): nothing tells what it is.
 * victim: refuse=UDP_CORK */
#include <netinet/udp.h>

#include "../sock.h"

int main(void)
{
        struct sockaddr_in a = LOOPBACK;
        int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(bind(to, (struct sockaddr *)&a, sizeof(a)) == 0);
        a = own_name(to);
        CHECK(connect(from, (struct sockaddr *)&a, sizeof(a)) == 0);
        set_option(from, IPPROTO_UDP, UDP_CORK, 1);
        say(from, "held ");
        victim_ready();
        victim_wait();
        say(from, "back");
        set_option(from, IPPROTO_UDP, UDP_CORK, 0);
        expect(to, "held back");
        victim_pass();
}
