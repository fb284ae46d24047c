/* Processes blocked in accept and recv on TCP, in recvfrom on UDP and in connect's backlog wait get theirs after the thaw. */
#include "../blocked.h"
#include "../sock.h"

static int l, u, t[2];
static struct sockaddr_in a = LOOPBACK, b = LOOPBACK;

static int by_accept(void)
{
        int s = accept4(l, NULL, NULL, 0);
        char c;
        return s >= 0 && recv(s, &c, 1, 0) == 1 && c == 'a' ? 3 : 1;
}
static int by_recv(void)
{
        char c;
        return recv(t[1], &c, 1, 0) == 1 && c == 't' ? 3 : 1;
}
static int by_udp(void)
{
        char c;
        return recv(u, &c, 1, 0) == 1 && c == 'u' ? 3 : 1;
}

int main(void)
{
        socklen_t n = sizeof(b);

        l = tcp_listen(&a, 1);
        tcp_pair(t);
        u = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(bind(u, (struct sockaddr *)&b, sizeof(b)) == 0 && getsockname(u, (struct sockaddr *)&b, &n) == 0);
        pid_t pa = block_process(SYS_accept4, by_accept), pt = block_process(SYS_recvfrom, by_recv),
              pu = block_process(SYS_recvfrom, by_udp);
        victim_ready();
        victim_wait();
        int c = tcp_connect(&a), d = socket(AF_INET, SOCK_DGRAM, 0);
        say(c, "a");
        say(t[0], "t");
        CHECK(sendto(d, "u", 1, 0, (struct sockaddr *)&b, sizeof(b)) == 1);
        CHECK(status_of(pa) == 3 && status_of(pt) == 3 && status_of(pu) == 3);
        victim_pass();
}
