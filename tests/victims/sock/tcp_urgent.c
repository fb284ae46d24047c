/* Urgent data (MSG_OOB) of TCP: behind something, at the head, last of all, taken already, in line; in a connection that is not accepted
 * yet; and at an end whose peer is gone. */
#include <stdbool.h>
#include <sys/ioctl.h>

#include "../sock.h"

enum { BEHIND, HEAD, LAST, TAKEN, IN_LINE, PEER_GONE, KINDS };

static void send_urgent(int fd, char c)
{
        CHECK(send(fd, &c, 1, MSG_OOB) == 1);
}

static bool at_mark(int fd)
{
        int answer = -1;

        CHECK(ioctl(fd, SIOCATMARK, &answer) == 0);
        return answer;
}

static void await_urgent(int fd)
{
        struct pollfd p = {fd, POLLPRI, 0};

        CHECK(poll(&p, 1, 5000) == 1);
}

static void expect_urgent(int fd, char c)
{
        char got;

        await_urgent(fd);
        CHECK(recv(fd, &got, 1, MSG_OOB) == 1 && got == c);
}

static void write_to(int fd, int kind)
{
        if (kind != HEAD)
                say(fd, "before");
        send_urgent(fd, (char)('A' + kind));
        if (kind != LAST)
                say(fd, "after");
}

static void set_up(int pair[2], int kind)
{
        tcp_pair(pair);
        if (kind == IN_LINE)
                set_option(pair[1], SOL_SOCKET, SO_OOBINLINE, 1);
        write_to(pair[0], kind);
        await_urgent(pair[1]);
        if (kind == TAKEN)
                expect_urgent(pair[1], 'A' + TAKEN);
        if (kind == PEER_GONE)
                close(pair[0]);
}

static void check(int fd, int kind)
{
        char byte;

        if (kind != HEAD)
                expect(fd, "before");
        if (!at_mark(fd))
                victim_fail("kind %d is not at the mark", kind);
        if (kind == TAKEN || kind == IN_LINE)
                CHECK(recv(fd, &byte, 1, MSG_OOB) == -1 && errno == EINVAL);
        else
                expect_urgent(fd, (char)('A' + kind));
        if (kind != LAST)
                expect(fd, kind == IN_LINE ? "Eafter" : "after");
        CHECK(kind == LAST || !at_mark(fd));
        if (kind == PEER_GONE)
                CHECK(recv(fd, &byte, 1, 0) == 0);
        else
                CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

int main(void)
{
        int pairs[KINDS][2], l, c;
        struct sockaddr_in a = LOOPBACK;

        for (int i = 0; i < KINDS; i++)
                set_up(pairs[i], i);
        l = tcp_listen(&a, 4);
        c = tcp_connect(&a);
        write_to(c, BEHIND);
        victim_ready();
        victim_wait();
        for (int i = 0; i < KINDS; i++)
                check(pairs[i][1], i);
        check(accept(l, NULL, NULL), BEHIND);
        say(pairs[BEHIND][0], "more");
        expect(pairs[BEHIND][1], "more");
        victim_pass();
}
