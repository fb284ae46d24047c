/* TCP connections that are over: closed by both sides with data left, reset with data left, reset and told so, refused. */
#include "../sock.h"

struct end {
        int fd, events;
};

static int events_of(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLRDHUP, 0};

        CHECK(poll(&p, 1, 0) >= 0);
        return p.revents;
}

/* It comes to this, and is remembered. */
static struct end await(int fd, int events)
{
        for (int i = 0; i < 1000 && (events_of(fd) & events) != events; i++)
                usleep(1000);
        CHECK((events_of(fd) & events) == events);
        return (struct end){fd, events_of(fd)};
}

static void reset(int fd)
{
        struct linger none = {1, 0};

        CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0 && close(fd) == 0);
}

int main(void)
{
        int both[2], broken[2], told[2], half[2];
        char buf[16];
        struct sockaddr_in nobody = LOOPBACK;

        tcp_pair(both);
        say(both[0], "left");
        CHECK(shutdown(both[0], SHUT_WR) == 0);
        await(both[1], POLLIN | POLLRDHUP);
        CHECK(shutdown(both[1], SHUT_WR) == 0);
        tcp_pair(broken);
        say(broken[0], "before");
        await(broken[1], POLLIN);
        reset(broken[0]);
        tcp_pair(told);
        reset(told[0]);
        await(told[1], POLLERR);
        CHECK(get_option(told[1], SOL_SOCKET, SO_ERROR) == ECONNRESET);
        tcp_pair(half);
        say(half[0], "half");
        CHECK(close(half[0]) == 0);
        int taken = tcp_listen(&nobody, 1), refused = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(close(taken) == 0 && connect(refused, (struct sockaddr *)&nobody, sizeof(nobody)) == -1);
        struct end ends[] = {await(both[1], POLLHUP), await(both[0], POLLHUP),   await(broken[1], POLLERR),
                             await(told[1], POLLHUP), await(half[1], POLLRDHUP), await(refused, POLLERR)};
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
                if (events_of(ends[i].fd) != ends[i].events)
                        victim_fail("end %zu: events %#x, not %#x", i, events_of(ends[i].fd), ends[i].events);
        expect(both[1], "left");
        CHECK(recv(both[1], buf, 1, 0) == 0 && send(both[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
        CHECK(recv(both[0], buf, 1, 0) == 0);
        CHECK(get_option(broken[1], SOL_SOCKET, SO_ERROR) == ECONNRESET);
        CHECK(recv(told[1], buf, 1, 0) == 0 && send(told[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
        expect(half[1], "half");
        CHECK(recv(half[1], buf, 1, 0) == 0);
        CHECK(get_option(refused, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
        victim_pass();
}
