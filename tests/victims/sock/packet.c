/* Packet sockets: of all protocols and of one, bound to an interface or not, of the old kind, with options, a filter, a ring, a group that
 * shares what comes, promiscuous mode; what a thaw sends itself does not come to them, nor to a raw socket of TCP. */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/syscall.h>

#include "../sock.h"

enum { ALL, CUT, IDLE, OLD, RING, SHARED, TCP, KINDS };

static void bind_to(int fd, uint16_t protocol, int interface)
{
        struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = interface};

        CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
}

static void check_bound(int fd, uint16_t protocol, int interface)
{
        struct sockaddr_ll a;
        socklen_t n = sizeof(a);

        CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0 && a.sll_protocol == htons(protocol) &&
              a.sll_ifindex == interface);
}

/* Only datagrams that begin with 'y', behind the headers of IP and UDP. */
static void filter(int fd)
{
        struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 28), BPF_JUMP(BPF_JMP | BPF_JEQ, 'y', 0, 1),
                                     BPF_STMT(BPF_RET, 0xffff), BPF_STMT(BPF_RET, 0)};
        struct sock_fprog program = {4, code};

        CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
}

static void drain(int fd)
{
        char byte;

        while (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0)
                ;
}

static void expect_nothing(int fd)
{
        char buf[256];

        if (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) >= 0)
                victim_fail("descriptor %d has received something", fd);
}

static void expect_packet(int fd, size_t header, const char *text)
{
        char buf[256];
        struct pollfd p = {fd, POLLIN, 0};

        CHECK(poll(&p, 1, 5000) == 1 && recv(fd, buf, sizeof(buf), 0) == (ssize_t)(header + strlen(text)));
        CHECK(memcmp(buf + header, text, strlen(text)) == 0);
}

static void set_up(int *fds)
{
        struct packet_mreq promiscuous = {.mr_ifindex = 1, .mr_type = PACKET_MR_PROMISC};
        struct tpacket_req ring = {.tp_block_size = 4096, .tp_block_nr = 2, .tp_frame_size = 1024, .tp_frame_nr = 8};
        struct sockaddr lo = {.sa_family = AF_PACKET, .sa_data = "lo"};

        CHECK(fds[IDLE] >= 0 && fds[OLD] >= 0 && fds[TCP] >= 0);
        for (int i = 0; i < 2; i++)
                CHECK(setsockopt(fds[ALL], SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof(promiscuous)) == 0);
        bind_to(fds[CUT], ETH_P_IP, 1);
        filter(fds[CUT]);
        set_option(fds[CUT], SOL_PACKET, PACKET_AUXDATA, 1);
        CHECK(bind(fds[OLD], &lo, sizeof(lo)) == 0);
        set_option(fds[RING], SOL_PACKET, PACKET_VERSION, TPACKET_V2);
        set_option(fds[RING], SOL_PACKET, PACKET_RESERVE, 32);
        CHECK(setsockopt(fds[RING], SOL_PACKET, PACKET_TX_RING, &ring, sizeof(ring)) == 0);
        bind_to(fds[SHARED], ETH_P_IP, 1);
        set_option(fds[SHARED], SOL_PACKET, PACKET_FANOUT, 77 | PACKET_FANOUT_LB << 16);
}

static void check_options(const int *fds)
{
        struct packet_mreq promiscuous = {.mr_ifindex = 1, .mr_type = PACKET_MR_PROMISC};
        struct tpacket_req ring = {0};

        check_bound(fds[ALL], ETH_P_ALL, 0);
        check_bound(fds[CUT], ETH_P_IP, 1);
        check_bound(fds[IDLE], 0, 0);
        CHECK(get_option(fds[CUT], SOL_PACKET, PACKET_AUXDATA) == 1);
        CHECK(get_option(fds[RING], SOL_PACKET, PACKET_VERSION) == TPACKET_V2 &&
              get_option(fds[RING], SOL_PACKET, PACKET_RESERVE) == 32);
        /* With a ring its version cannot be changed. */
        int version = TPACKET_V1;
        CHECK(setsockopt(fds[RING], SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) == -1 && errno == EBUSY);
        CHECK(setsockopt(fds[RING], SOL_PACKET, PACKET_TX_RING, &ring, sizeof(ring)) == 0);
        CHECK(get_option(fds[SHARED], SOL_PACKET, PACKET_FANOUT) == (77 | PACKET_FANOUT_LB << 16));
        for (int i = 0; i < 2; i++)
                CHECK(setsockopt(fds[ALL], SOL_PACKET, PACKET_DROP_MEMBERSHIP, &promiscuous, sizeof(promiscuous)) == 0);
}

int main(void)
{
        int tcp[2], u = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in a = LOOPBACK;
        struct sockaddr old;
        socklen_t n = sizeof(old);

        tcp_pair(tcp);
        say(tcp[0], "under way");
        int fds[KINDS] = {socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)),
                          socket(AF_PACKET, SOCK_DGRAM, 0),
                          socket(AF_PACKET, SOCK_RAW, 0),
                          (int)syscall(SYS_socket, AF_PACKET, SOCK_PACKET, htons(ETH_P_IP)),
                          socket(AF_PACKET, SOCK_RAW, 0),
                          socket(AF_PACKET, SOCK_DGRAM, 0),
                          socket(AF_INET, SOCK_RAW, IPPROTO_TCP)};
        if (fds[ALL] < 0)
                victim_skip("no packet sockets here");
        CHECK(bind(u, (struct sockaddr *)&a, sizeof(a)) == 0);
        a = own_name(u);
        set_up(fds);
        usleep(100000); /* for a late acknowledgement */
        for (int i = 0; i < KINDS; i++)
                drain(fds[i]);
        victim_ready();
        victim_wait();
        usleep(100000);
        for (int i = 0; i < KINDS; i++)
                expect_nothing(fds[i]);
        check_options(fds);
        CHECK(sendto(u, "no", 2, 0, (struct sockaddr *)&a, sizeof(a)) == 2);
        CHECK(sendto(u, "yes", 3, 0, (struct sockaddr *)&a, sizeof(a)) == 3);
        expect_packet(fds[ALL], 42, "no");
        expect_packet(fds[CUT], 28, "yes");
        expect_packet(fds[SHARED], 28, "no");
        CHECK(getsockname(fds[OLD], &old, &n) == 0 && strcmp(old.sa_data, "lo") == 0);
        expect_packet(fds[OLD], 42, "no");
        expect_nothing(fds[IDLE]);
        expect_nothing(fds[TCP]);
        expect(tcp[1], "under way");
        say(tcp[1], "still");
        expect(tcp[0], "still");
        victim_pass();
}
