/* Unix connections that are not accepted yet, with what is harder than a few bytes: credentials, of processes that have ended too, a
 * client that has shut its sending side, one with a name, messages and descriptors of clients that have closed; and in flight there
 * sockets whose other ends are in the tree, and an epoll.
 * victim: flavours=unfrozen,kill,twice,run-on,tracked */
#include <sys/epoll.h>
#include <sys/wait.h>

#include "../sock.h"

/* Connects, writes and ends. */
static pid_t visitor(int fd)
{
        pid_t pid = fork();

        if (pid == 0) {
                int c = unix_client(SOCK_STREAM, "\0one", 4);
                send_fds(c, &fd, 1, "visited");
                say(c, "and gone");
                _exit(0);
        }
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        return pid;
}

/* Who sent this text, and what came along. */
static pid_t sender(int fd, const char *text, int *fds, size_t n)
{
        char control[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(64)] = {0}, buf[64] = {0};
        struct iovec iov = {buf, strlen(text)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        pid_t who = -1;
        size_t came = 0;

        CHECK(recvmsg(fd, &m, 0) == (ssize_t)strlen(text) && strcmp(buf, text) == 0);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                if (c->cmsg_type == SCM_CREDENTIALS)
                        who = ((struct ucred *)(void *)CMSG_DATA(c))->pid;
                else if (c->cmsg_type == SCM_RIGHTS) {
                        came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                        CHECK(came <= n);
                        memcpy(fds, CMSG_DATA(c), came * sizeof(int));
                }
        CHECK(came == n);
        return who;
}

int main(void)
{
        int one = unix_listener(SOCK_STREAM, "\0one", 4, 16), two = unix_listener(SOCK_SEQPACKET, "\0two", 4, 16), p[2],
            tcp[2], pair[2];
        set_option(one, SOL_SOCKET, SO_PASSCRED, 1);
        set_option(two, SOL_SOCKET, SO_PASSCRED, 1);
        CHECK(pipe(p) == 0 && write(p[1], "piped", 5) == 5 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        tcp_pair(tcp);
        say(tcp[0], "before");
        int ep = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);

        pid_t visited = visitor(p[0]);
        int half = unix_client(SOCK_STREAM, "\0one", 4);
        say(half, "half");
        CHECK(shutdown(half, SHUT_WR) == 0);
        int silent = unix_client(SOCK_STREAM, "\0one", 4), named = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un a;
        CHECK(bind(named, (struct sockaddr *)&a, unix_name(&a, "\0named", 6)) == 0);
        CHECK(connect(named, (struct sockaddr *)&a, unix_name(&a, "\0one", 4)) == 0);
        int three[] = {tcp[1], pair[1], ep};
        send_fds(named, three, 3, "sockets");
        close(tcp[1]);
        close(pair[1]);
        close(ep);
        int left = unix_client(SOCK_SEQPACKET, "\0two", 4);
        say(left, "a message");
        say(left, "another");
        close(left);

        victim_ready();
        victim_wait();
        char buf[16] = {0};
        int s[4], fds[3];
        for (int i = 0; i < 4; i++)
                CHECK((s[i] = accept(one, NULL, NULL)) >= 0);
        CHECK(unix_maker(s[0]) == visited && unix_maker(s[1]) == getpid());
        CHECK(sender(s[0], "visited", fds, 1) == visited && read(fds[0], buf, 3) == 3 && memcmp(buf, "pip", 3) == 0);
        CHECK(sender(s[0], "and gone", NULL, 0) == visited);
        expect(s[0], "");
        CHECK(sender(s[1], "half", NULL, 0) == getpid());
        expect(s[1], "");
        say(s[1], "answer");
        expect(half, "answer");
        say(silent, "not any more");
        CHECK(sender(s[2], "not any more", NULL, 0) == getpid());
        socklen_t n = sizeof(a);
        CHECK(getpeername(s[3], (struct sockaddr *)&a, &n) == 0 && memcmp(a.sun_path, "\0named", 6) == 0);

        CHECK(sender(s[3], "sockets", fds, 3) == getpid());
        expect(fds[0], "before");
        say(fds[0], "there");
        expect(tcp[0], "there");
        say(tcp[0], "and back");
        expect(fds[0], "and back");
        say(pair[0], "paired");
        expect(fds[1], "paired");
        CHECK(epoll_wait(fds[2], &event, 1, 1000) == 1 && event.data.u64 == 77);

        int t = accept(two, NULL, NULL);
        expect(t, "a message");
        expect(t, "another");
        CHECK(recv(t, buf, 1, 0) == 0);
        victim_pass();
}
