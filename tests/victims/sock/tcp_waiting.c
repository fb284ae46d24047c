/* TCP connections that are not accepted yet, but written to, and their clients: who waits in a read and in epolls, who has shut a side,
 * who has options, a port or an address of its own, who does not block.  None is told of a freeze by an error, a signal or an end. */
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include "../sock.h"

/* Which client is what. */
enum { READS, POLLS, SENDS_NO_MORE, HAS_OPTIONS, RECEIVES_NO_MORE, IS_BOUND, CLIENTS };

static int c[CLIENTS];
static volatile sig_atomic_t signals;

static void count_signal(int signo)
{
        signals++;
}

static int reader_fd;

static void *read_one(void *argument)
{
        char buf[16] = {0};

        CHECK(read(reader_fd, buf, sizeof(buf)) == 7 && strcmp(buf, "for you") == 0);
        return NULL;
}

static void set_options(void)
{
        set_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_NODELAY, 1);
        set_option(c[HAS_OPTIONS], SOL_SOCKET, SO_KEEPALIVE, 1);
        set_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_KEEPIDLE, 77);
        set_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_USER_TIMEOUT, 9999);
        set_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_LINGER2, 11);
        set_option(c[HAS_OPTIONS], SOL_SOCKET, SO_SNDBUF, 30000);
        set_option(c[HAS_OPTIONS], SOL_SOCKET, SO_RCVBUF, 20000);
        set_option(c[HAS_OPTIONS], SOL_SOCKET, SO_PRIORITY, 3);
        set_option(c[HAS_OPTIONS], SOL_SOCKET, SO_PEEK_OFF, 0);
        CHECK(setsockopt(c[HAS_OPTIONS], SOL_SOCKET, SO_LINGER, &(struct linger){1, 5}, sizeof(struct linger)) == 0);
        signal(SIGIO, count_signal);
        CHECK(fcntl(c[HAS_OPTIONS], F_SETOWN, getpid()) == 0 &&
              fcntl(c[HAS_OPTIONS], F_SETFL, O_NONBLOCK | O_ASYNC) == 0);
}

static void check_options(void)
{
        struct linger linger;
        socklen_t n = sizeof(linger);

        CHECK(signals == 0 && get_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_NODELAY) == 1 &&
              get_option(c[HAS_OPTIONS], SOL_SOCKET, SO_KEEPALIVE) == 1);
        CHECK(get_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_KEEPIDLE) == 77 &&
              get_option(c[HAS_OPTIONS], IPPROTO_TCP, TCP_USER_TIMEOUT) == 9999);
        CHECK(get_option(c[HAS_OPTIONS], SOL_SOCKET, SO_SNDBUF) == 60000 &&
              get_option(c[HAS_OPTIONS], SOL_SOCKET, SO_RCVBUF) == 40000);
        CHECK(get_option(c[HAS_OPTIONS], SOL_SOCKET, SO_PRIORITY) == 3 &&
              get_option(c[HAS_OPTIONS], SOL_SOCKET, SO_PEEK_OFF) == 0);
        CHECK(fcntl(c[HAS_OPTIONS], F_GETFL) == (O_RDWR | O_NONBLOCK | O_ASYNC) &&
              fcntl(c[SENDS_NO_MORE], F_GETFL) == O_RDWR);
        CHECK(get_option(c[IS_BOUND], SOL_SOCKET, SO_REUSEADDR) == 1 &&
              get_option(c[POLLS], SOL_SOCKET, SO_REUSEADDR) == 0);
        CHECK(getsockopt(c[HAS_OPTIONS], SOL_SOCKET, SO_LINGER, &linger, &n) == 0 && linger.l_onoff == 1 &&
              linger.l_linger == 5);
}

static void check_clients(const struct sockaddr_in *names)
{
        for (int i = 0; i < CLIENTS; i++) {
                struct sockaddr_in now = own_name(c[i]);
                struct pollfd p = {.fd = c[i], .events = POLLIN | POLLOUT | POLLRDHUP};
                int error = get_option(c[i], SOL_SOCKET, SO_ERROR);
                int events = i == RECEIVES_NO_MORE ? POLLIN | POLLOUT | POLLRDHUP : POLLOUT;
                CHECK(memcmp(&now, &names[i], sizeof(now)) == 0);
                if (error || poll(&p, 1, 0) != 1 || p.revents != events)
                        victim_fail("client %d: error %d, events %#x", i, error, p.revents);
        }
}

int main(void)
{
        struct sockaddr_in a = LOOPBACK, own = LOOPBACK, names[CLIENTS];
        int l = tcp_listen(&a, 64), s[CLIENTS], level = epoll_create1(0), edge = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 5};
        pthread_t thread;

        own.sin_addr.s_addr = htonl(0x7f000005);
        for (int i = 0; i < IS_BOUND; i++)
                c[i] = tcp_connect(&a);
        c[IS_BOUND] = socket(AF_INET, SOCK_STREAM, 0);
        set_option(c[IS_BOUND], SOL_SOCKET, SO_REUSEADDR, 1);
        CHECK(bind(c[IS_BOUND], (struct sockaddr *)&own, sizeof(own)) == 0);
        CHECK(connect(c[IS_BOUND], (struct sockaddr *)&a, sizeof(a)) == 0);
        for (int i = 0; i < CLIENTS; i++)
                say(c[i], "hello");
        reader_fd = c[READS];
        CHECK(pthread_create(&thread, NULL, read_one, NULL) == 0);
        CHECK(epoll_ctl(level, EPOLL_CTL_ADD, c[POLLS], &event) == 0);
        event.events |= EPOLLET;
        CHECK(epoll_ctl(edge, EPOLL_CTL_ADD, c[POLLS], &event) == 0 && epoll_wait(edge, &event, 1, 0) == 0);
        say(c[POLLS], ", more");
        CHECK(shutdown(c[SENDS_NO_MORE], SHUT_WR) == 0);
        set_options();
        CHECK(shutdown(c[RECEIVES_NO_MORE], SHUT_RD) == 0);
        for (int i = 0; i < CLIENTS; i++)
                names[i] = own_name(c[i]);
        signals = 0;
        usleep(20000);
        victim_ready();
        victim_wait();
        check_clients(names);
        check_options();
        CHECK(epoll_wait(level, &event, 1, 0) == 0 && epoll_wait(edge, &event, 1, 0) == 0);

        for (int i = 0; i < CLIENTS; i++) {
                s[i] = tcp_accept_from(l, c[i]);
                expect(s[i], i == POLLS ? "hello, more" : "hello");
        }
        expect(s[SENDS_NO_MORE], "");
        say(s[SENDS_NO_MORE], "still");
        expect(c[SENDS_NO_MORE], "still");
        say(s[READS], "for you");
        CHECK(pthread_join(thread, NULL) == 0);
        say(s[POLLS], "event");
        CHECK(epoll_wait(level, &event, 1, 1000) == 1 && event.data.u64 == 5);
        CHECK(epoll_wait(edge, &event, 1, 1000) == 1 && event.data.u64 == 5 && event.events == EPOLLIN);
        expect(c[POLLS], "event");
        say(s[IS_BOUND], "own");
        expect(c[IS_BOUND], "own");
        say(c[IS_BOUND], "and back");
        expect(s[IS_BOUND], "and back");
        CHECK(fcntl(l, F_GETFL) == O_RDWR);

        victim_pass();
}
