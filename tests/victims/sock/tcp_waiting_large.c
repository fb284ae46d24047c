/* TCP connections that are not accepted yet, into which more was sent than was received: by a client that waits, and by one that has
 * closed; one that was reset, and ones that have sent nothing, or more than their buffer takes now. */
#include "../sock.h"

#define LARGE (8 << 20)

static char pattern(size_t i)
{
        return (char)(i * 7 + i / 251);
}

static size_t fill(int fd, size_t most)
{
        static char buf[LARGE];
        size_t total = 0;

        for (size_t i = 0; i < sizeof(buf); i++)
                buf[i] = pattern(i);
        for (ssize_t n; total < most && (n = send(fd, buf + total, most - total, MSG_DONTWAIT)) > 0;)
                total += (size_t)n;
        CHECK(total > 0);
        return total;
}

static void drain(int fd, size_t total)
{
        char buf[65536];
        size_t at = 0;

        while (at < total) {
                ssize_t n = recv(fd, buf, sizeof(buf), 0);
                if (n <= 0)
                        victim_fail("%zd (errno %d) at %zu of %zu", n, errno, at, total);
                for (ssize_t i = 0; i < n; i++)
                        CHECK(buf[i] == pattern(at + (size_t)i));
                at += (size_t)n;
        }
        CHECK(at == total);
}

int main(void)
{
        struct sockaddr_in p = LOOPBACK;
        int ll = tcp_listen(&p, 8);
        int large = tcp_connect(&p), gone = tcp_connect(&p), reset = tcp_connect(&p), quiet = tcp_connect(&p);
        size_t total = fill(large, LARGE), left = fill(gone, LARGE);
        CHECK(close(gone) == 0);
        CHECK(setsockopt(reset, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
        CHECK(close(reset) == 0);
        /* What it sent before has no room in it any more. */
        int small = tcp_connect(&p);
        size_t some = fill(small, 250000);
        set_option(small, SOL_SOCKET, SO_SNDBUF, 2304);
        usleep(20000);
        victim_ready();
        victim_wait();
        int sl = tcp_accept_from(ll, large), sg = accept(ll, NULL, NULL), sr = accept(ll, NULL, NULL),
            sq = tcp_accept_from(ll, quiet);
        drain(sl, total);
        say(large, "go on");
        expect(sl, "go on");
        drain(sg, left);
        expect(sg, "");
        char byte;
        CHECK(recv(sr, &byte, 1, 0) <= 0);
        say(sq, "to quiet");
        expect(quiet, "to quiet");
        CHECK(get_option(small, SOL_SOCKET, SO_SNDBUF) == 4608);
        int ss = tcp_accept_from(ll, small);
        drain(ss, some);
        say(ss, "to small");
        expect(small, "to small");
        victim_pass();
}
