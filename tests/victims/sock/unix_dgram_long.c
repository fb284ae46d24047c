/* More unix datagrams queued than a new network namespace lets a socket have (net.unix.max_dgram_qlen). */
#include "../sock.h"

#define N 60

int main(void)
{
        int limit = open("/proc/sys/net/unix/max_dgram_qlen", O_WRONLY), sink, from;
        struct sockaddr_un a;
        socklen_t n = unix_name(&a, "\0long", 5);
        char text[16];

        if (limit < 0 || write(limit, "100", 3) != 3)
                victim_skip("max_dgram_qlen cannot be set");
        sink = socket(AF_UNIX, SOCK_DGRAM, 0);
        from = socket(AF_UNIX, SOCK_DGRAM, 0);
        CHECK(bind(sink, (struct sockaddr *)&a, n) == 0 && connect(from, (struct sockaddr *)&a, n) == 0);
        for (int i = 0; i < N; i++) {
                snprintf(text, sizeof(text), "datagram %d", i);
                CHECK(send(from, text, strlen(text), MSG_DONTWAIT) == (ssize_t)strlen(text));
        }
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++) {
                snprintf(text, sizeof(text), "datagram %d", i);
                expect(sink, text);
        }
        for (int i = 0; i < N; i++)
                CHECK(send(from, "x", 1, MSG_DONTWAIT) == 1);
        victim_pass();
}
