/* 60 connections with something in both queues, in an epoll each side. */
#include <sys/epoll.h>

#include "../sock.h"

#define N 60

int main(void)
{
        struct sockaddr_in a = LOOPBACK;
        int l = tcp_listen(&a, N), c[N], s[N], e = epoll_create1(0);
        char text[32];

        for (int i = 0; i < N; i++) {
                c[i] = tcp_connect(&a);
                CHECK((s[i] = accept(l, NULL, NULL)) >= 0);
                snprintf(text, sizeof(text), "to server %d", i);
                say(c[i], text);
                snprintf(text, sizeof(text), "to client %d", i);
                say(s[i], text);
                struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
                CHECK(epoll_ctl(e, EPOLL_CTL_ADD, s[i], &ev) == 0);
        }
        victim_ready();
        victim_wait();
        struct epoll_event got[N];
        CHECK(epoll_wait(e, got, N, 1000) == N);
        for (int i = 0; i < N; i++) {
                snprintf(text, sizeof(text), "to server %d", i);
                expect(s[i], text);
                snprintf(text, sizeof(text), "to client %d", i);
                expect(c[i], text);
                say(c[i], "more");
        }
        CHECK(epoll_wait(e, got, N, 1000) == N);
        for (int i = 0; i < N; i++)
                expect(s[i], "more");
        victim_pass();
}
