/* An end that has filled both queues and shut its side down before the freeze: all comes, then the end. */
#include "../sock.h"

static unsigned char byte_at(long i)
{
        return (unsigned char)(i * 131 + (i >> 13) * 7);
}

int main(void)
{
        static unsigned char buf[32768];
        long sent = 0, got = 0;
        int s[2];

        tcp_pair(s);
        for (;;) {
                for (long i = 0; i < (long)sizeof(buf); i++)
                        buf[i] = byte_at(sent + i);
                ssize_t n = send(s[0], buf, sizeof(buf), MSG_DONTWAIT);
                if (n < 0)
                        break;
                sent += n;
        }
        CHECK(errno == EAGAIN && sent > 0 && shutdown(s[0], SHUT_WR) == 0);
        victim_ready();
        victim_wait();
        for (ssize_t n; (n = recv(s[1], buf, sizeof(buf), 0)) != 0; got += n) {
                CHECK(n > 0);
                for (ssize_t i = 0; i < n; i++)
                        if (buf[i] != byte_at(got + i))
                                victim_fail("byte %ld is another one", got + i);
        }
        if (got != sent)
                victim_fail("%ld of %ld bytes came", got, sent);
        CHECK(send(s[1], "back", 4, 0) == 4 && recv(s[0], buf, sizeof(buf), 0) == 4 && memcmp(buf, "back", 4) == 0);
        victim_pass();
}
