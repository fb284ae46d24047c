/* Empty messages: first, between others, several, and last, of datagram and seqpacket sockets, one whose other end is closed among them.
 * victim: flavours=unfrozen,kill,run-on,fork,twice,tracked,checkpoints,owner */
#include "../sock.h"

static void queue_up(int fd)
{
        CHECK(send(fd, "", 0, 0) == 0);
        say(fd, "one");
        CHECK(send(fd, "", 0, 0) == 0 && send(fd, "", 0, 0) == 0);
        say(fd, "two");
        CHECK(send(fd, "", 0, 0) == 0);
}

static void check_queue(int fd)
{
        static const char *const texts[] = {"", "one", "", "", "two", ""};
        char buf[16];

        for (size_t i = 0; i < 6; i++) {
                ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
                if (n != (ssize_t)strlen(texts[i]) || memcmp(buf, texts[i], (size_t)n) != 0)
                        victim_fail("message %zu: %zd bytes", i, n);
        }
}

int main(void)
{
        int d[2], q[2], closed[2];

        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, d) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, q) == 0 &&
              socketpair(AF_UNIX, SOCK_SEQPACKET, 0, closed) == 0);
        queue_up(d[0]);
        queue_up(q[0]);
        queue_up(closed[0]);
        close(closed[0]);
        victim_ready();
        victim_wait();
        char byte;
        check_queue(d[1]);
        CHECK(recv(d[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
        check_queue(q[1]);
        CHECK(recv(q[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
        check_queue(closed[1]);
        CHECK(recv(closed[1], &byte, 1, 0) == 0);
        say(d[0], "more");
        expect(d[1], "more");
        say(q[0], "more");
        expect(q[1], "more");
        victim_pass();
}
