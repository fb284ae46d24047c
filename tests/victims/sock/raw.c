/* Raw sockets and one for ICMP echo requests: bound, connected without a port, with options and filters of their own.  What they have
 * received may be lost. */
#include <linux/icmp.h>
#include <netinet/icmp6.h>

#include "../sock.h"

#define ANY_PROTOCOL 253 /* for experiments */
#define SOL_RAW 255

static struct sockaddr_in at(uint8_t last)
{
        struct sockaddr_in a = LOOPBACK;

        a.sin_addr.s_addr = (a.sin_addr.s_addr & 0xffffff) | (uint32_t)last << 24;
        return a;
}

/* Answered requests, by number. */
static void ping(int fd, uint8_t number)
{
        struct sockaddr_in a = LOOPBACK;
        struct icmphdr request = {.type = ICMP_ECHO, .un.echo.sequence = number}, answer;
        struct pollfd p = {fd, POLLIN, 0};

        CHECK(sendto(fd, &request, sizeof(request), 0, (struct sockaddr *)&a, sizeof(a)) == sizeof(request));
        do
                CHECK(poll(&p, 1, 5000) == 1 && recv(fd, &answer, sizeof(answer), 0) == sizeof(answer));
        while (answer.un.echo.sequence != number);
        CHECK(answer.type == ICMP_ECHOREPLY);
}

/* The next packet has this text behind a header of `header` bytes. */
static void expect_packet(int fd, size_t header, const char *text)
{
        char buf[256];
        struct pollfd p = {fd, POLLIN, 0};

        CHECK(poll(&p, 1, 5000) == 1 && recv(fd, buf, sizeof(buf), 0) == (ssize_t)(header + strlen(text)));
        CHECK(memcmp(buf + header, text, strlen(text)) == 0);
}

int main(void)
{
        struct icmp6_filter filter6, now6;
        struct icmp_filter filter = {.data = 1 << ICMP_TIMESTAMP}, now;
        struct sockaddr_in own = at(7), to = at(1);
        struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        int bound = socket(AF_INET, SOCK_RAW, ANY_PROTOCOL), connected = socket(AF_INET, SOCK_RAW, ANY_PROTOCOL),
            six = socket(AF_INET6, SOCK_RAW, ANY_PROTOCOL), header = socket(AF_INET, SOCK_RAW, IPPROTO_RAW),
            icmp = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), icmp6 = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
        socklen_t n = sizeof(now);

        if (bound < 0)
                victim_skip("no raw sockets here");
        CHECK(connected >= 0 && six >= 0 && header >= 0 && icmp >= 0 && icmp6 >= 0);
        CHECK(bind(bound, (struct sockaddr *)&own, sizeof(own)) == 0 &&
              connect(connected, (struct sockaddr *)&own, sizeof(own)) == 0 &&
              connect(six, (struct sockaddr *)&to6, sizeof(to6)) == 0);
        set_option(bound, IPPROTO_IP, IP_TTL, 33);
        set_option(connected, IPPROTO_IP, IP_HDRINCL, 0);
        set_option(six, SOL_RAW, IPV6_CHECKSUM, 2);
        CHECK(setsockopt(icmp, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter)) == 0);
        memset(&filter6, 0x5a, sizeof(filter6));
        CHECK(setsockopt(icmp6, IPPROTO_ICMPV6, ICMP6_FILTER, &filter6, sizeof(filter6)) == 0);
        int range = open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY), echo = -1;
        if (range >= 0 && write(range, "0 0", 3) == 3)
                echo = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
        if (echo >= 0)
                ping(echo, 1);
        struct sockaddr_in number = {0};
        if (echo >= 0)
                number = own_name(echo);
        close(range);
        victim_ready();
        victim_wait();
        CHECK(own_name(bound).sin_addr.s_addr == own.sin_addr.s_addr && get_option(bound, IPPROTO_IP, IP_TTL) == 33);
        say(connected, "there");
        expect_packet(bound, 20, "there");
        own = own_name(connected);
        CHECK(sendto(bound, "back", 4, 0, (struct sockaddr *)&own, sizeof(own)) == 4);
        expect_packet(connected, 20, "back");
        CHECK(get_option(six, SOL_RAW, IPV6_CHECKSUM) == 2 && send(six, "1234", 4, 0) == 4);
        CHECK(get_option(header, IPPROTO_IP, IP_HDRINCL) == 1 && get_option(connected, IPPROTO_IP, IP_HDRINCL) == 0);
        CHECK(getsockopt(icmp, SOL_RAW, ICMP_FILTER, &now, &n) == 0 && now.data == filter.data);
        n = sizeof(now6);
        CHECK(getsockopt(icmp6, IPPROTO_ICMPV6, ICMP6_FILTER, &now6, &n) == 0 &&
              memcmp(&now6, &filter6, sizeof(now6)) == 0);
        CHECK(sendto(icmp, "12345678", 8, 0, (struct sockaddr *)&to, sizeof(to)) == 8);
        if (echo >= 0) {
                CHECK(own_name(echo).sin_port == number.sin_port);
                ping(echo, 2);
        }
        victim_pass();
}
