/* Unix datagrams: queued from several named senders with their addresses, zero-length ones, connected, seqpacket records. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_un a, b, from;
        socklen_t an = unix_name(&a, "sink", 5), bn = unix_name(&b, "\0sender", 7), n = sizeof(from);
        int sink = socket(AF_UNIX, SOCK_DGRAM, 0), named = socket(AF_UNIX, SOCK_DGRAM, 0),
            anon = socket(AF_UNIX, SOCK_DGRAM, 0), seq[2], dg[2];
        char buf[64];

        CHECK(bind(sink, (struct sockaddr *)&a, an) == 0 && bind(named, (struct sockaddr *)&b, bn) == 0);
        CHECK(sendto(named, "one", 3, 0, (struct sockaddr *)&a, an) == 3 &&
              connect(anon, (struct sockaddr *)&a, an) == 0);
        say(anon, "second");
        CHECK(send(anon, "", 0, 0) == 0 && sendto(named, "four", 4, 0, (struct sockaddr *)&a, an) == 4);
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, seq) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, dg) == 0);
        /* A sender that is gone, to one that has since been connected to another: it takes no more from others. */
        struct sockaddr_un ghost, picky;
        socklen_t gn = unix_name(&ghost, "\0ghost", 6), pn = unix_name(&picky, "\0picky", 6);
        int g = socket(AF_UNIX, SOCK_DGRAM, 0), p = socket(AF_UNIX, SOCK_DGRAM, 0);
        CHECK(bind(g, (struct sockaddr *)&ghost, gn) == 0 && bind(p, (struct sockaddr *)&picky, pn) == 0 &&
              sendto(g, "boo", 3, 0, (struct sockaddr *)&picky, pn) == 3 && close(g) == 0 &&
              connect(p, (struct sockaddr *)&b, bn) == 0 &&
              sendto(named, "mine", 4, 0, (struct sockaddr *)&picky, pn) == 4);
        say(seq[0], "a record");
        say(seq[0], "b");
        say(seq[0], "the third one");
        say(dg[0], "d1");
        say(dg[1], "d2");
        close(seq[0]);
        victim_ready();
        victim_wait();
        CHECK(recvfrom(sink, buf, 64, 0, (struct sockaddr *)&from, &n) == 3 && n == bn && memcmp(&from, &b, bn) == 0);
        CHECK(sendto(sink, "reply", 5, 0, (struct sockaddr *)&from, n) == 5);
        expect(named, "reply");
        expect(sink, "second");
        CHECK(recv(sink, buf, 64, 0) == 0);
        expect(sink, "four");
        CHECK(recv(sink, buf, 64, MSG_DONTWAIT) == -1 && errno == EAGAIN);
        say(anon, "later");
        expect(sink, "later");
        n = sizeof(from);
        CHECK(recvfrom(p, buf, 64, 0, (struct sockaddr *)&from, &n) == 3 && n == gn && memcmp(&from, &ghost, gn) == 0);
        n = sizeof(from);
        CHECK(recvfrom(p, buf, 64, 0, (struct sockaddr *)&from, &n) == 4 && n == bn && memcmp(&from, &b, bn) == 0);
        CHECK(sendto(anon, "no", 2, 0, (struct sockaddr *)&picky, pn) == -1 && errno == EPERM);
        expect(seq[1], "a record");
        expect(seq[1], "b");
        CHECK(recv(seq[1], buf, 4, MSG_TRUNC) == 13 && recv(seq[1], buf, 64, 0) == 0);
        expect(dg[1], "d1");
        expect(dg[0], "d2");
        victim_pass();
}
