/* A packet socket is refused by name and receives on.
 * victim: refuse=socket */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "../victim.h"

int main(void)
{
        int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), u = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in a = {
                .sin_family = AF_INET, .sin_port = htons(4321), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        char buf[200];

        if (fd < 0)
                victim_skip("no packet sockets here");
        victim_ready();
        victim_wait();
        CHECK(sendto(u, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)) == 1);
        CHECK(recv(fd, buf, sizeof(buf), 0) > 0);
        victim_pass();
}
