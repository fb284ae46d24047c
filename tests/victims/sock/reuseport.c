/* Several listeners at one port (SO_REUSEPORT), with connections that each of them has accepted; listeners of IPv6 with and without
 * IPv4, one of each family at one port; bound and unbound sockets. */
#include "../sock.h"

#define LISTENERS 3
#define CLIENTS 12

static int listen6(struct sockaddr_in6 *a, int v6only)
{
        socklen_t n = sizeof(*a);
        int l = socket(AF_INET6, SOCK_STREAM, 0);

        set_option(l, IPPROTO_IPV6, IPV6_V6ONLY, v6only);
        CHECK(bind(l, (struct sockaddr *)a, n) == 0 && listen(l, 3) == 0 &&
              getsockname(l, (struct sockaddr *)a, &n) == 0);
        return l;
}

static int accept_any(struct pollfd *listeners)
{
        CHECK(poll(listeners, LISTENERS, 5000) == 1);
        for (int i = 0; i < LISTENERS; i++)
                if (listeners[i].revents)
                        return accept(listeners[i].fd, NULL, NULL);
        return -1;
}

int main(void)
{
        struct sockaddr_in a = LOOPBACK, to_dual = LOOPBACK, any = {.sin_family = AF_INET};
        struct sockaddr_in6 dual = {.sin6_family = AF_INET6}, only = {.sin6_family = AF_INET6};
        struct pollfd listeners[LISTENERS];
        int clients[CLIENTS], servers[CLIENTS];

        for (int i = 0; i < LISTENERS; i++) {
                socklen_t n = sizeof(a);
                listeners[i] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
                set_option(listeners[i].fd, SOL_SOCKET, SO_REUSEPORT, 1);
                CHECK(bind(listeners[i].fd, (struct sockaddr *)&a, n) == 0 && listen(listeners[i].fd, 5) == 0 &&
                      getsockname(listeners[i].fd, (struct sockaddr *)&a, &n) == 0);
        }
        for (int i = 0; i < CLIENTS; i++) {
                clients[i] = tcp_connect(&a);
                servers[i] = accept_any(listeners);
        }
        int both = listen6(&dual, 0), six = listen6(&only, 1), bound = socket(AF_INET, SOCK_STREAM, 0),
            fresh = socket(AF_INET, SOCK_STREAM, 0);
        any.sin_port = only.sin6_port;
        to_dual.sin_port = dual.sin6_port;
        int four = tcp_listen(&any, 3), c = tcp_connect(&to_dual), s = accept(both, NULL, NULL);
        struct sockaddr_in own = LOOPBACK;
        CHECK(bind(bound, (struct sockaddr *)&own, sizeof(own)) == 0);
        own = own_name(bound);
        say(c, "dual");
        victim_ready();
        victim_wait();
        for (int i = 0; i < CLIENTS; i++) {
                say(clients[i], "to");
                expect(servers[i], "to");
        }
        CHECK(tcp_connect(&a) >= 0 && accept_any(listeners) >= 0);
        expect(s, "dual");
        CHECK(get_option(both, IPPROTO_IPV6, IPV6_V6ONLY) == 0 && get_option(six, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
        struct sockaddr_in to_four = LOOPBACK;
        to_four.sin_port = any.sin_port;
        CHECK(tcp_connect(&to_four) >= 0 && accept(four, NULL, NULL) >= 0);
        CHECK(own_name(bound).sin_port == own.sin_port && listen(bound, 1) == 0 &&
              connect(fresh, (struct sockaddr *)&own, sizeof(own)) == 0);
        victim_pass();
}
