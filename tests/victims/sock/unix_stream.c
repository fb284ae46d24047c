/* Unix stream pairs: data both ways (hundreds of KB), non-blocking full, half-closed both ways, the other end gone. */
#include "../sock.h"

int main(void)
{
        int a[2], full[2], shut[2], rd[2], gone[2], reset[2];
        static char big[150000], back[150000];

        signal(SIGPIPE, SIG_IGN);
        int *all[] = {a, full, shut, rd, gone, reset};
        for (int i = 0; i < 6; i++)
                CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, all[i]) == 0);
        for (size_t i = 0; i < sizeof(big); i++)
                big[i] = (char)(i * 7 + i / 999);
        int buffer = 400000;
        setsockopt(a[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
        CHECK(send(a[0], big, sizeof(big), 0) == (ssize_t)sizeof(big));
        say(a[1], "back");
        ssize_t n, sent = 0;
        while ((n = send(full[0], big, 1000, MSG_DONTWAIT)) > 0)
                sent += n;
        say(shut[0], "last");
        CHECK(shutdown(shut[0], SHUT_WR) == 0 && shutdown(rd[0], SHUT_RD) == 0);
        say(gone[0], "words");
        close(gone[0]);
        say(reset[1], "unread");
        close(reset[0]); /* with data unread: ECONNRESET for the other */
        victim_ready();
        victim_wait();
        CHECK(recv(a[1], back, sizeof(back), MSG_WAITALL) == (ssize_t)sizeof(back) &&
              memcmp(big, back, sizeof(big)) == 0);
        expect(a[0], "back");
        ssize_t got = 0;
        while ((n = recv(full[1], back, 1000, MSG_DONTWAIT)) > 0)
                got += n;
        CHECK(got == sent && errno == EAGAIN);
        say(full[0], "again");
        expect(full[1], "again");
        expect(shut[1], "last");
        expect(shut[1], "");
        say(shut[1], "other way");
        expect(shut[0], "other way");
        CHECK(send(shut[0], "x", 1, 0) == -1 && errno == EPIPE);
        CHECK(recv(rd[0], back, 1, 0) == 0 && send(rd[1], "x", 1, 0) == -1 && errno == EPIPE);
        expect(gone[1], "words");
        expect(gone[1], "");
        CHECK(send(gone[1], "x", 1, 0) == -1 && errno == EPIPE);
        CHECK(recv(reset[1], back, 1, MSG_DONTWAIT) <= 0);
        victim_pass();
}
