/* Urgent data (MSG_OOB) of unix streams: behind something, at the head, last of all, in line, from one who has closed; behind a descriptor
 * and before one. */
#include <stdbool.h>
#include <sys/ioctl.h>

#include "../sock.h"

enum { BEHIND, HEAD, LAST, IN_LINE, PEER_GONE, RIGHTS, KINDS };

static void send_urgent(int fd, char c)
{
        if (send(fd, &c, 1, MSG_OOB) != 1)
                victim_skip("no urgent data in unix sockets here");
}

static bool at_mark(int fd)
{
        int answer = -1;

        CHECK(ioctl(fd, SIOCATMARK, &answer) == 0);
        return answer;
}

static void expect_urgent(int fd, char c)
{
        char got;

        CHECK(recv(fd, &got, 1, MSG_OOB) == 1 && got == c);
}

static void set_up(int pair[2], int kind)
{
        int fd = 0;

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        if (kind == IN_LINE)
                set_option(pair[1], SOL_SOCKET, SO_OOBINLINE, 1);
        if (kind == RIGHTS)
                send_fds(pair[0], &fd, 1, "before");
        else if (kind != HEAD)
                say(pair[0], "before");
        send_urgent(pair[0], (char)('A' + kind));
        if (kind == RIGHTS)
                send_fds(pair[0], &fd, 1, "after");
        else if (kind != LAST)
                say(pair[0], "after");
        if (kind == PEER_GONE)
                close(pair[0]);
}

static void check(int fd, int kind)
{
        int got[8];
        char byte;

        if (kind == RIGHTS)
                CHECK(receive_fds(fd, got, "before") == 1);
        else if (kind != HEAD)
                expect(fd, "before");
        if (!at_mark(fd))
                victim_fail("kind %d is not at the mark", kind);
        if (kind != IN_LINE)
                expect_urgent(fd, (char)('A' + kind));
        if (kind == RIGHTS)
                CHECK(receive_fds(fd, got, "after") == 1);
        else if (kind != LAST)
                expect(fd, kind == IN_LINE ? "Dafter" : "after");
        if (kind == PEER_GONE)
                CHECK(recv(fd, &byte, 1, 0) == 0);
        else
                CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

int main(void)
{
        int pairs[KINDS][2];

        for (int i = 0; i < KINDS; i++)
                set_up(pairs[i], i);
        victim_ready();
        victim_wait();
        for (int i = 0; i < KINDS; i++)
                check(pairs[i][1], i);
        say(pairs[BEHIND][0], "more");
        expect(pairs[BEHIND][1], "more");
        victim_pass();
}
