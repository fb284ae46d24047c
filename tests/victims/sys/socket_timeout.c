/* recv with SO_RCVTIMEO, accept with it, send with SO_SNDTIMEO: EAGAIN, not EINTR, and not early. */
#include <sys/socket.h>
#include <sys/un.h>

#include "../blocked.h"

static int r[2], w[2], l;

static long by_recv(void)
{
        char c;
        return recv(r[0], &c, 1, 0);
}
static long by_accept(void)
{
        return accept(l, NULL, NULL);
}
static long by_send(void)
{
        static char buf[4096];
        ssize_t n;

        do /* a refilled queue may have a little room */
                n = send(w[0], buf, sizeof(buf), 0);
        while (n > 0);
        return n;
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "recv", .nr = SYS_recvfrom, .run = by_recv, .want = -EAGAIN},
                {.name = "accept", .nr = SYS_accept, .run = by_accept, .want = -EAGAIN},
                {.name = "send", .nr = SYS_sendto, .run = by_send, .want = -EAGAIN},
        };
        struct timeval tv = {0, 900000};
        struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "timeout"};
        char buf[4096] = {0};

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, r) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, w) == 0);
        l = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(bind(l, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(l, 1) == 0);
        while (send(w[0], buf, sizeof(buf), MSG_DONTWAIT) > 0)
                ;
        while (send(w[0], buf, 1, MSG_DONTWAIT) > 0)
                ;
        setsockopt(r[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(w[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        timed_all(rows, ROWS(rows), 0.9, 0);
        victim_pass();
}
