/* Datagram sockets made as pairs, and what became of them: one closed, one connected to another since, one that got a name; sockets
 * in flight within each other. */
#include <sys/stat.h>

#include "../sock.h"

static struct sockaddr_un names[4];
static socklen_t lengths[4];

static void bind_to(int fd, unsigned which)
{
        char name[] = {'\0', 'p', 'a', 'i', 'r', (char)('0' + which)};

        lengths[which] = unix_name(&names[which], name, sizeof(name));
        CHECK(bind(fd, (struct sockaddr *)&names[which], lengths[which]) == 0);
}

static int send_to(int fd, unsigned which, const char *text)
{
        return (int)sendto(fd, text, strlen(text), 0, (struct sockaddr *)&names[which], lengths[which]);
}

static void expect_from(int fd, const char *text, unsigned which)
{
        struct sockaddr_un from;
        socklen_t n = sizeof(from);
        char buf[64] = {0};

        CHECK(recvfrom(fd, buf, sizeof(buf) - 1, MSG_DONTWAIT, (struct sockaddr *)&from, &n) == (ssize_t)strlen(text));
        CHECK(strcmp(buf, text) == 0 && n == lengths[which] && memcmp(&from, &names[which], n) == 0);
}

static void expect_nothing(int fd)
{
        char byte;

        CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

/* A chain of sockets, each in flight in the one before, and a loop of two at its end. */
static int chain(unsigned length)
{
        int head[2], next[2], first;

        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, head) == 0);
        first = head[1];
        for (unsigned i = 0; i < length; i++) {
                CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, next) == 0);
                send_fds(head[0], &next[1], 1, "link");
                close(head[0]);
                if (i > 0)
                        close(head[1]);
                head[0] = next[0], head[1] = next[1];
        }
        say(head[0], "end");
        close(head[0]);
        close(head[1]);
        return first;
}

static void follow(int fd, unsigned length)
{
        for (unsigned i = 0; i < length; i++) {
                int next[8];
                CHECK(receive_fds(fd, next, "link") == 1);
                close(fd);
                fd = next[0];
        }
        expect(fd, "end");
        CHECK(send(fd, "x", 1, 0) < 0 && errno == ECONNREFUSED);
        close(fd);
}

static size_t fill(int fd)
{
        char block[16384] = {0};
        size_t sum = 0;
        ssize_t n;

        while ((n = send(fd, block, sizeof(block), MSG_DONTWAIT)) > 0)
                sum += (size_t)n;
        return sum;
}

static size_t drain(int fd)
{
        char block[16384];
        size_t sum = 0;
        ssize_t n;

        while ((n = recv(fd, block, sizeof(block), 0)) > 0)
                sum += (size_t)n;
        CHECK(n == 0);
        return sum;
}

int main(void)
{
        int gone[2], moved[2], named[2], freed[2], loop[2], ended[2], late[2], got[8], p[2], l = chain(40);

        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, gone) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, moved) == 0 &&
              socketpair(AF_UNIX, SOCK_DGRAM, 0, named) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, freed) == 0 &&
              socketpair(AF_UNIX, SOCK_DGRAM, 0, loop) == 0 && pipe(p) == 0 &&
              socketpair(AF_UNIX, SOCK_STREAM, 0, ended) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, late) == 0);
        /* Closed by its sender, who had a name by then, with a descriptor in flight. */
        say(gone[0], "nobody's");
        bind_to(gone[0], 0);
        send_fds(gone[0], &p[0], 1, "a pipe");
        close(gone[0]);
        close(p[0]);
        /* The sender has turned to another. */
        int other = socket(AF_UNIX, SOCK_DGRAM, 0);
        bind_to(other, 1);
        say(moved[0], "before");
        CHECK(connect(moved[0], (struct sockaddr *)&names[1], lengths[1]) == 0);
        say(moved[0], "after");
        /* One that got a name later: its mate still has none. */
        bind_to(named[0], 2);
        say(named[0], "to the nameless");
        say(named[1], "to the named");
        /* One that is connected to nobody any more, while its mate still is to it. */
        CHECK(connect(freed[0], &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)) == 0);
        say(freed[1], "still");
        /* In flight in themselves and in each other. */
        for (int i = 0; i < 4; i++)
                send_fds(loop[i / 2], &loop[i % 2], 1, "loop");
        /* Closed by its sender, who had more room than usual, with a socket in flight that was made later. */
        set_option(ended[0], SOL_SOCKET, SO_SNDBUF, 200000);
        send_fds(ended[0], &late[1], 1, "late");
        close(late[1]);
        size_t filled = fill(ended[0]);
        close(ended[0]);
        victim_ready();
        victim_wait();
        expect(gone[1], "nobody's");
        struct sockaddr_un from;
        socklen_t n = sizeof(from);
        char byte;
        CHECK(recvfrom(gone[1], &byte, 1, MSG_PEEK, (struct sockaddr *)&from, &n) == 1 && n == lengths[0] &&
              memcmp(&from, &names[0], n) == 0);
        CHECK(receive_fds(gone[1], got, "a pipe") == 1 && write(p[1], "w", 1) == 1 && read(got[0], &byte, 1) == 1);
        CHECK(send(gone[1], "x", 1, 0) < 0 && errno == ECONNREFUSED);
        expect(moved[1], "before");
        expect_nothing(moved[1]);
        CHECK(send(moved[1], "x", 1, 0) < 0 && errno == EPERM);
        expect(other, "after");
        say(moved[0], "again");
        expect(other, "again");
        expect_from(named[1], "to the nameless", 2);
        expect(named[0], "to the named");
        say(named[0], "once more");
        expect_from(named[1], "once more", 2);
        CHECK(send_to(other, 2, "x") < 0 && errno == EPERM);
        expect(freed[0], "still");
        CHECK(send(freed[0], "x", 1, 0) < 0 && errno == ENOTCONN);
        say(freed[1], "on");
        expect(freed[0], "on");
        for (int i = 0; i < 4; i++) {
                struct stat a, b;
                CHECK(receive_fds(loop[1 - i / 2], got, "loop") == 1);
                CHECK(fstat(got[0], &a) == 0 && fstat(loop[i % 2], &b) == 0 && a.st_ino == b.st_ino);
        }
        CHECK(receive_fds(ended[1], got, "late") == 1);
        say(late[0], "there");
        expect(got[0], "there");
        CHECK(drain(ended[1]) == filled);
        follow(l, 40);
        victim_pass();
}
