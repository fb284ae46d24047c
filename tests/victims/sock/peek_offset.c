/* SO_PEEK_OFF: where the next peek begins, of TCP, unix streams and datagrams; what is before it is there all the same. */
#include "../sock.h"

static void expect_peek(int fd, const char *text)
{
        char buf[32];

        CHECK(recv(fd, buf, sizeof(buf), MSG_PEEK) == (ssize_t)strlen(text) && memcmp(buf, text, strlen(text)) == 0);
}

int main(void)
{
        int pairs[3][2];

        tcp_pair(pairs[0]);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[1]) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pairs[2]) == 0);
        for (int i = 0; i < 3; i++) {
                say(pairs[i][0], "abcdefgh");
                CHECK(poll(&(struct pollfd){pairs[i][1], POLLIN, 0}, 1, 5000) == 1);
                set_option(pairs[i][1], SOL_SOCKET, SO_PEEK_OFF, 3);
        }
        victim_ready();
        victim_wait();
        for (int i = 0; i < 3; i++) {
                CHECK(get_option(pairs[i][1], SOL_SOCKET, SO_PEEK_OFF) == 3);
                expect_peek(pairs[i][1], "defgh");
                expect(pairs[i][1], "abcdefgh");
        }
        victim_pass();
}
