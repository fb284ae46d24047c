/* Unix sockets: a stream pair with data both ways, a seqpacket pair with two packets, datagrams, a listener with an accepted
 * and a pending connection, an abstract one, a pair whose other end is closed, descriptors in flight. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "victim.h"

static int listener(const char *name, size_t n)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        memcpy(a.sun_path, name, n);
        CHECK(fd >= 0 &&
              bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0 &&
              listen(fd, 5) == 0);
        return fd;
}

static int client(const char *name, size_t n)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        memcpy(a.sun_path, name, n);
        CHECK(connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0);
        return fd;
}

static void send_fd(int to, int fd)
{
        char c = 'F', control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec iov = {&c, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &fd, sizeof(int));
        CHECK(sendmsg(to, &m, 0) == 1);
}

static int receive_fd(int from)
{
        char c = 0, control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec iov = {&c, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        int fd = -1;

        CHECK(recvmsg(from, &m, 0) == 1 && c == 'F' && CMSG_FIRSTHDR(&m));
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
        return fd;
}

static void expect(int fd, const char *text)
{
        char buf[64] = {0};

        CHECK(recv(fd, buf, sizeof(buf) - 1, 0) == (ssize_t)strlen(text) && strcmp(buf, text) == 0);
}

int main(void)
{
        int st[2], seq[2], dg[2], gone[2], flight[2], p[2];
        char big[50000], back[50000];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, st) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, seq) == 0);
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, dg) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, gone) == 0);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, flight) == 0 && pipe(p) == 0);
        memset(big, 'b', sizeof(big));
        CHECK(send(st[0], "to one", 6, 0) == 6 && send(st[1], big, sizeof(big), 0) == sizeof(big));
        CHECK(send(seq[0], "first", 5, 0) == 5 && send(seq[0], "second!", 7, 0) == 7);
        CHECK(send(dg[1], "dgram", 5, 0) == 5);
        CHECK(send(gone[0], "last words", 10, 0) == 10 && close(gone[0]) == 0);
        CHECK(write(p[1], "through", 7) == 7);
        send_fd(flight[0], p[0]);
        close(p[0]);
        int l = listener("sock", 5), la = listener("\0abs", 4);
        int c1 = client("sock", 5), a1 = accept(l, NULL, NULL), c2 = client("sock", 5), ca = client("\0abs", 4),
            aa = accept(la, NULL, NULL);
        CHECK(a1 >= 0 && aa >= 0 && send(c1, "c1", 2, 0) == 2 && send(aa, "aa", 2, 0) == 2);
        victim_ready();
        victim_wait();
        expect(st[1], "to one");
        CHECK(recv(st[0], back, sizeof(back), MSG_WAITALL) == sizeof(back) && memcmp(big, back, sizeof(big)) == 0);
        expect(seq[1], "first");
        expect(seq[1], "second!");
        expect(dg[0], "dgram");
        expect(gone[1], "last words");
        expect(gone[1], "");
        int in_flight = receive_fd(flight[1]);
        char buf[16] = {0};
        CHECK(read(in_flight, buf, 16) == 7 && strcmp(buf, "through") == 0);
        expect(a1, "c1");
        expect(ca, "aa");
        struct sockaddr_un name = {0};
        socklen_t n = sizeof(name);
        CHECK(getsockname(a1, (struct sockaddr *)&name, &n) == 0 && strcmp(name.sun_path, "sock") == 0);
        int a2 = accept(l, NULL, NULL);
        CHECK(a2 >= 0 && send(c2, "late", 4, 0) == 4);
        expect(a2, "late");
        int c3 = client("\0abs", 4), a3 = accept(la, NULL, NULL);
        CHECK(send(c3, "new", 3, 0) == 3);
        expect(a3, "new");
        victim_pass();
}
