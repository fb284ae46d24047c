/* An ICMP echo socket, which a new network namespace lets nobody have.
 * victim: refuse=ICMP echo socket */
#include "../sock.h"

int main(void)
{
        struct sockaddr_in a = LOOPBACK;
        const char request[8] = {8}; /* the kernel fills the rest in */
        int range = open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY);

        if (range < 0 || write(range, "0 0", 3) != 3)
                victim_skip("ping_group_range cannot be set");
        int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
        CHECK(fd >= 0);
        victim_ready();
        victim_wait();
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(sendto(fd, request, 8, 0, (struct sockaddr *)&a, sizeof(a)) == 8 && poll(&p, 1, 5000) == 1);
        victim_pass();
}
