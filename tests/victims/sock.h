/* For victims of sockets. */
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "victim.h"

#define LOOPBACK                                                     \
        {                                                            \
                .sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f \
        } /* in network order; this is x86 */

/* What comes next is this text, as one message or at once. */
static inline void expect(int fd, const char *text)
{
        char buf[256] = {0};
        ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);

        if (n != (ssize_t)strlen(text) || strcmp(buf, text) != 0)
                victim_fail("descriptor %d: \"%s\" came (%zd, errno %d), not \"%s\"", fd, buf, n, errno, text);
}

static inline void say(int fd, const char *text)
{
        CHECK(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
}

static inline socklen_t unix_name(struct sockaddr_un *a, const char *name, size_t n)
{
        *a = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(a->sun_path, name, n);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static inline int unix_client(int type, const char *name, size_t n)
{
        struct sockaddr_un a;
        int fd = socket(AF_UNIX, type, 0);

        CHECK(connect(fd, (struct sockaddr *)&a, unix_name(&a, name, n)) == 0);
        return fd;
}

static inline int unix_listener(int type, const char *name, size_t n, int backlog)
{
        struct sockaddr_un a;
        int fd = socket(AF_UNIX, type, 0);

        CHECK(bind(fd, (struct sockaddr *)&a, unix_name(&a, name, n)) == 0 && listen(fd, backlog) == 0);
        return fd;
}

/* Whom SO_PEERCRED names. */
static inline pid_t unix_maker(int fd)
{
        struct ucred who;
        socklen_t n = sizeof(who);

        CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0);
        return who.pid;
}

static inline int tcp_listen(struct sockaddr_in *a, int backlog)
{
        socklen_t n = sizeof(*a);
        int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(l >= 0 && bind(l, (struct sockaddr *)a, n) == 0 && listen(l, backlog) == 0 &&
              getsockname(l, (struct sockaddr *)a, &n) == 0);
        return l;
}

static inline int tcp_connect(const struct sockaddr_in *a)
{
        int c = socket(AF_INET, SOCK_STREAM, 0);

        CHECK(c >= 0 && connect(c, (const struct sockaddr *)a, sizeof(*a)) == 0);
        return c;
}

static inline void tcp_pair(int pair[2])
{
        struct sockaddr_in a = LOOPBACK;
        int l = tcp_listen(&a, 1);

        pair[0] = tcp_connect(&a);
        pair[1] = accept(l, NULL, NULL);
        CHECK(pair[1] >= 0);
        close(l);
}

static inline int get_option(int fd, int level, int name)
{
        int value = -1;
        socklen_t n = sizeof(value);

        CHECK(getsockopt(fd, level, name, &value, &n) == 0);
        return value;
}

static inline void set_option(int fd, int level, int name, int value)
{
        CHECK(setsockopt(fd, level, name, &value, sizeof(value)) == 0);
}

static inline struct sockaddr_in own_name(int fd)
{
        struct sockaddr_in a;
        socklen_t n = sizeof(a);

        CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
        return a;
}

/* The next one comes from this client. */
static inline int tcp_accept_from(int l, int client)
{
        struct sockaddr_in a;
        socklen_t n = sizeof(a);
        int s = accept(l, (struct sockaddr *)&a, &n);

        CHECK(s >= 0 && a.sin_port == own_name(client).sin_port);
        return s;
}

static inline void send_fds(int to, const int *fds, size_t n, const char *text)
{
        char control[CMSG_SPACE(sizeof(int) * 8)] = {0};
        struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * n);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * n);
        CHECK(sendmsg(to, &m, 0) == (ssize_t)strlen(text));
}

/* The number of descriptors that came. */
static inline size_t receive_fds(int from, int *fds, const char *text)
{
        char control[CMSG_SPACE(sizeof(int) * 8)] = {0}, buf[64] = {0};
        struct iovec iov = {buf, strlen(text)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

        CHECK(recvmsg(from, &m, 0) == (ssize_t)strlen(text) && strcmp(buf, text) == 0);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        if (!h || h->cmsg_type != SCM_RIGHTS)
                return 0;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(h), n * sizeof(int));
        return n;
}
