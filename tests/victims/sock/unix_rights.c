/* Descriptors in flight: a pipe, a file with its offset, several in one message, a socket that carries another one, one
 * that only the queue holds; with PENDING_DATA (unix_rights_pending.c) in a connection that is not accepted yet. */
#include "../sock.h"

int main(void)
{
        int s[2], p[2], inner[2], dg[2], fds[8];
        char buf[16] = {0};

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, inner) == 0 &&
              pipe(p) == 0);
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, dg) == 0);
        int f = open("f", O_RDWR | O_CREAT, 0600);
        CHECK(write(f, "0123456789", 10) == 10 && lseek(f, 3, SEEK_SET) == 3 && write(p[1], "in pipe", 7) == 7);
        say(s[0], "plain");
        int three[] = {p[0], f, p[0]};
        send_fds(s[0], three, 3, "three");
        send_fds(inner[0], &f, 1, "deep");
        send_fds(dg[0], &inner[1], 1, "socket");
        send_fds(dg[0], &p[1], 1, "writer");
        close(p[0]);
        close(p[1]);
        close(f);
        close(inner[1]);
        say(s[0], "after");
        struct sockaddr_un a;
        socklen_t n = unix_name(&a, "\0rights", 7);
        int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), q[2];
        CHECK(pipe(q) == 0 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 &&
              connect(c, (struct sockaddr *)&a, n) == 0);
#ifdef PENDING_DATA
        send_fds(c, &q[1], 1, "pending");
        close(q[1]);
#endif
        victim_ready();
        victim_wait();
        CHECK(receive_fds(s[1], fds, "plain") == 0);
        CHECK(receive_fds(s[1], fds, "three") == 3);
        CHECK(read(fds[2], buf, 3) == 3 && read(fds[0], buf, 16) == 4 && memcmp(buf, "pipe", 4) == 0);
        int file = fds[1];
        CHECK(lseek(file, 0, SEEK_CUR) == 3);
        int reader = fds[0];
        CHECK(receive_fds(s[1], fds, "after") == 0);
        CHECK(receive_fds(dg[1], fds, "socket") == 1);
        int sock = fds[0];
        CHECK(receive_fds(dg[1], fds, "writer") == 1 && write(fds[0], "again", 5) == 5 && read(reader, buf, 16) == 5);
        CHECK(receive_fds(sock, fds, "deep") == 1 && read(fds[0], buf, 2) == 2 && lseek(file, 0, SEEK_CUR) == 5);
        int acc = accept(l, NULL, NULL);
#ifndef PENDING_DATA
        send_fds(c, &q[1], 1, "pending");
#endif
        CHECK(receive_fds(acc, fds, "pending") == 1 && write(fds[0], "q", 1) == 1 && read(q[0], buf, 16) == 1);
        victim_pass();
}
