/* TCP connections that are over: closed by both sides with data left, reset with data left, reset and told so, refused; their addresses,
 * where the listener is there still or gone. */
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

struct names {
        int fd;
        struct sockaddr_in own, to;
};

static struct names names_of(int fd)
{
        struct names n = {.fd = fd, .own = own_name(fd)};
        socklen_t length = sizeof(n.to);

        CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &n.to, &length) == 0);
        return n;
}

static void check_names(const struct names *n)
{
        struct names now = names_of(n->fd);

        if (now.own.sin_port != n->own.sin_port || now.to.sin_port != n->to.sin_port ||
            now.own.sin_addr.s_addr != n->own.sin_addr.s_addr || now.to.sin_addr.s_addr != n->to.sin_addr.s_addr)
                victim_fail("descriptor %d: port %d to %d, not %d to %d", n->fd, ntohs(now.own.sin_port),
                            ntohs(now.to.sin_port), ntohs(n->own.sin_port), ntohs(n->to.sin_port));
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
        /* Left by the client and by the server, at a listener that is there. */
        struct sockaddr_in there = LOOPBACK;
        int l = tcp_listen(&there, 4), c[2], s[2];
        for (int i = 0; i < 2; i++) {
                c[i] = tcp_connect(&there);
                s[i] = accept(l, NULL, NULL);
        }
        CHECK(close(c[0]) == 0 && close(s[1]) == 0);
        await(s[0], POLLRDHUP);
        await(c[1], POLLRDHUP);
        struct names names[] = {names_of(both[0]), names_of(both[1]), names_of(broken[1]), names_of(told[1]),
                                names_of(half[1]), names_of(s[0]),    names_of(c[1])};
        struct end ends[] = {await(both[1], POLLHUP), await(both[0], POLLHUP),   await(broken[1], POLLERR),
                             await(told[1], POLLHUP), await(half[1], POLLRDHUP), await(refused, POLLERR)};
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
                if (events_of(ends[i].fd) != ends[i].events)
                        victim_fail("end %zu: events %#x, not %#x", i, events_of(ends[i].fd), ends[i].events);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                check_names(&names[i]);
        CHECK(recv(s[0], buf, 1, 0) == 0 && recv(c[1], buf, 1, 0) == 0);
        int again = tcp_connect(&there), taken_again = accept(l, NULL, NULL);
        say(again, "again");
        expect(taken_again, "again");
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
