/* Unix listeners: pending connections, abstract, unlinked, seqpacket; names on both ends of accepted connections.  With
 * PENDING_DATA (unix_listen_data.c) there is data in them, and one is closed by its client already.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked */
#include "../sock.h"

int main(void)
{
        int path = unix_listener(SOCK_STREAM, "path", 5, 10), abs = unix_listener(SOCK_STREAM, "\0abstract", 9, 10),
            seq = unix_listener(SOCK_SEQPACKET, "seq", 4, 3), gone = unix_listener(SOCK_STREAM, "gone", 5, 3);
        int c1 = unix_client(SOCK_STREAM, "path", 5), c2 = unix_client(SOCK_STREAM, "path", 5),
            c3 = unix_client(SOCK_STREAM, "path", 5);
#ifdef PENDING_DATA
        say(c1, "from c1");
        say(c2, "closed already");
        close(c2);
#endif
        int ca = unix_client(SOCK_STREAM, "\0abstract", 9), cs = unix_client(SOCK_SEQPACKET, "seq", 4),
            cg = unix_client(SOCK_STREAM, "gone", 5);
#ifdef PENDING_DATA
        say(ca, "abstract");
        say(cs, "s1");
        say(cs, "s2");
#endif
        CHECK(unlink("gone") == 0);
        victim_ready();
        victim_wait();
        int a1 = accept(path, NULL, NULL), a2 = accept(path, NULL, NULL), a3 = accept(path, NULL, NULL);
        CHECK(a1 >= 0 && a2 >= 0 && a3 >= 0);
#ifndef PENDING_DATA
        say(c1, "from c1");
        say(c2, "closed already");
        close(c2);
        say(ca, "abstract");
        say(cs, "s1");
        say(cs, "s2");
#endif
        expect(a1, "from c1");
        say(a1, "answer");
        expect(c1, "answer");
        expect(a2, "closed already");
        expect(a2, "");
        say(c3, "c3");
        expect(a3, "c3");
        CHECK(fcntl(path, F_SETFL, O_NONBLOCK) == 0 && accept(path, NULL, NULL) == -1 && errno == EAGAIN);
        int aa = accept(abs, NULL, NULL), as = accept(seq, NULL, NULL), ag = accept(gone, NULL, NULL);
        expect(aa, "abstract");
        expect(as, "s1");
        expect(as, "s2");
        say(ag, "still");
        expect(cg, "still");
        struct sockaddr_un name = {0};
        socklen_t n = sizeof(name);
        CHECK(getpeername(ca, (struct sockaddr *)&name, &n) == 0 && memcmp(name.sun_path, "\0abstract", 9) == 0);
        int late = unix_client(SOCK_STREAM, "path", 5), al = accept(path, NULL, NULL);
        say(late, "late");
        expect(al, "late");
        victim_pass();
}
