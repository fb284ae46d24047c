/* Errors that the next call will tell: of a unix stream or record socket whose peer has closed with something unread, of a connected UDP
 * socket whose peer is gone; with and without something queued. */
#include "../sock.h"

static void leave_unread(int pair[2], int type, const char *queued)
{
        CHECK(socketpair(AF_UNIX, type, 0, pair) == 0);
        say(pair[0], "never read");
        if (queued)
                say(pair[1], queued);
        close(pair[1]);
}

/* Connected to one that has sent this and is gone. */
static int refused(const char *queued)
{
        struct sockaddr_in a = LOOPBACK, b = LOOPBACK;
        int fd = socket(AF_INET, SOCK_DGRAM, 0), peer = socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && bind(peer, (struct sockaddr *)&b, sizeof(b)) == 0);
        a = own_name(fd);
        b = own_name(peer);
        CHECK(connect(fd, (struct sockaddr *)&b, sizeof(b)) == 0 &&
              connect(peer, (struct sockaddr *)&a, sizeof(a)) == 0);
        if (queued)
                say(peer, queued);
        close(peer);
        CHECK(send(fd, "x", 1, 0) == 1);
        return fd;
}

static void expect_error(int fd, int error)
{
        char byte;

        if (recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != error)
                victim_fail("descriptor %d: error %d, not %d", fd, errno, error);
}

static void expect_end(int fd)
{
        char byte;

        CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
}

/* The error comes first, and may have been taken by a freeze. */
static void expect_behind_error(int fd, const char *text)
{
        struct pollfd p = {fd, 0, 0};

        CHECK(poll(&p, 1, 0) >= 0);
        if (p.revents & POLLERR)
                CHECK(get_option(fd, SOL_SOCKET, SO_ERROR) != 0);
        expect(fd, text);
}

int main(void)
{
        int bare[2], full[2], records[2], bare_record[2], lost, lost_full;

        leave_unread(bare, SOCK_STREAM, NULL);
        leave_unread(full, SOCK_STREAM, "queued");
        leave_unread(records, SOCK_SEQPACKET, "a record");
        leave_unread(bare_record, SOCK_SEQPACKET, NULL);
        lost = refused(NULL);
        lost_full = refused("a datagram");
        victim_ready();
        victim_wait();
        expect_error(bare[0], ECONNRESET);
        expect_end(bare[0]);
        expect(full[0], "queued");
        expect_error(full[0], ECONNRESET);
        expect_end(full[0]);
        expect_behind_error(records[0], "a record");
        expect_end(records[0]);
        expect_error(bare_record[0], ECONNRESET);
        expect_end(bare_record[0]);
        expect_error(lost, ECONNREFUSED);
        expect_error(lost, EAGAIN);
        expect_behind_error(lost_full, "a datagram");
        expect_error(lost_full, EAGAIN);
        victim_pass();
}
