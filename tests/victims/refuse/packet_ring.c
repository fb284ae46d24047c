/* The ring of a packet socket that is mapped: its reader would not stand where the kernel begins.
 * victim: refuse=maps device memory (socket: */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/mman.h>

#include "../sock.h"

int main(void)
{
        struct tpacket_req ring = {.tp_block_size = 4096, .tp_block_nr = 1, .tp_frame_size = 1024, .tp_frame_nr = 4};
        int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), u = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in a = LOOPBACK;

        if (fd < 0)
                victim_skip("no packet sockets here");
        CHECK(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)) == 0);
        struct tpacket_hdr *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(h != MAP_FAILED);
        victim_ready();
        victim_wait();
        a.sin_port = htons(4321);
        CHECK(sendto(u, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)) == 1);
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(poll(&p, 1, 5000) == 1 && h->tp_status & TP_STATUS_USER);
        victim_pass();
}
