/* Clients of unix connections that are not accepted yet, all at one listener, which get new sockets when the tree runs on: one that two
 * processes have and wait on (a read, an epoll, a poll), one whose writer waits for room, one with options, flags and numbers of its own,
 * one that was connected by a process that has ended and is another's now, urgent data, descriptors between other things, and messages, one of
 * them empty.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked,checkpoints,owner */
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "../blocked.h"
#include "../sock.h"

#define BLOCK 1000
#define NAME "\0reconnect"
#define SEQ "\0messages"

static int shared, full, other_ep;

static int by_recv(void)
{
        char c;
        return recv(shared, &c, 1, 0) == 1 && c == 'r' ? 3 : 1;
}
static int by_epoll(void)
{
        struct epoll_event e;
        return epoll_wait(other_ep, &e, 1, -1) == 1 && e.data.u64 == 99 && e.events & EPOLLIN ? 3 : 1;
}
static int by_poll(void)
{
        struct pollfd p = {.fd = shared, .events = POLLIN};
        return poll(&p, 1, -1) == 1 && p.revents == POLLIN ? 3 : 1;
}
static int by_send(void)
{
        char last[BLOCK];
        memset(last, 'z', sizeof(last));
        return send(full, last, sizeof(last), 0) == sizeof(last) ? 3 : 1;
}

static size_t fill(int fd)
{
        char block[BLOCK];
        size_t n = 0;

        memset(block, 'x', sizeof(block));
        while (send(fd, block, sizeof(block), MSG_DONTWAIT) == sizeof(block))
                n += sizeof(block);
        CHECK(errno == EAGAIN && n > 0);
        return n;
}

/* Made and connected by a process that sends its descriptor here and ends. */
static int inherited(pid_t *who)
{
        int pair[2], fd, status;

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && (*who = fork()) >= 0);
        if (*who == 0) {
                int c = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
                say(c, "inherited");
                send_fds(pair[1], &c, 1, "have it");
                _exit(0);
        }
        CHECK(waitpid(*who, &status, 0) == *who && status == 0 && receive_fds(pair[0], &fd, "have it") == 1);
        close(pair[0]);
        close(pair[1]);
        return fd;
}

/* By the end `s` of a client that had two numbers. */
static void check_odd(int odd, int twice, int room, int s)
{
        char byte;

        expect(s, "odd");
        CHECK(get_option(odd, SOL_SOCKET, SO_SNDBUF) == room && fcntl(odd, F_GETFL) == (O_RDWR | O_NONBLOCK));
        CHECK(recv(odd, &byte, 1, 0) == -1 && errno == EAGAIN);
        CHECK(fcntl(odd, F_GETFD) == FD_CLOEXEC && fcntl(twice, F_GETFD) == 0 && fcntl(twice, F_SETFL, 0) == 0);
        CHECK(fcntl(odd, F_GETFL) == O_RDWR && recv(odd, &byte, 1, 0) == -1 && errno == EAGAIN); /* a while later */
        say(twice, "from the other number");
        expect(s, "from the other number");
}

static void check_urgent(int s)
{
        int at_mark = -1;
        char byte = 0;

        expect(s, "ab");
        CHECK(ioctl(s, SIOCATMARK, &at_mark) == 0 && at_mark == 1 && recv(s, &byte, 1, MSG_OOB) == 1 && byte == 'c');
        expect(s, "de");
}

static void check_filled(int s, size_t filled)
{
        char block[BLOCK];

        for (size_t n = 0; n < filled + BLOCK; n += BLOCK) {
                CHECK(recv(s, block, BLOCK, MSG_WAITALL) == BLOCK);
                CHECK(block[0] == (n < filled ? 'x' : 'z') && memcmp(block, block + 1, BLOCK - 1) == 0);
        }
}

/* A pipe, and three clients that waited, too: of `shared`, of s itself, and of `silent`. */
static void check_rights(int s, int shared_end, int silent_end)
{
        int fds[2], three[3];
        char buf[5];

        CHECK(receive_fds(s, fds, "before") == 0 && receive_fds(s, fds, "two of them") == 2);
        CHECK(write(fds[1], "piped", 5) == 5 && read(fds[0], buf, 5) == 5 && memcmp(buf, "piped", 5) == 0);
        CHECK(receive_fds(s, three, "three more") == 3);
        expect(s, "after");
        say(three[0], "by a message");
        expect(shared_end, "by a message");
        say(three[1], "to itself");
        expect(s, "to itself");
        say(three[2], "by another");
        expect(silent_end, "by another");
}

static void check_messages(int l, int client)
{
        int s = accept(l, NULL, NULL);

        expect(s, "one");
        expect(s, "");
        expect(s, "three");
        say(s, "four");
        expect(client, "four");
}

int main(void)
{
        int l = unix_listener(SOCK_STREAM, NAME, sizeof(NAME) - 1, 6),
            m = unix_listener(SOCK_SEQPACKET, SEQ, sizeof(SEQ) - 1, 6);
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = 98};
        struct timeval soon = {.tv_usec = 300000};
        pid_t gone;

        int silent = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
        shared = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
        say(shared, "please");
        full = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
        size_t filled = fill(full);
        int odd = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
        say(odd, "odd");
        CHECK(setsockopt(odd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
        CHECK(fcntl(odd, F_SETFL, O_NONBLOCK) == 0 && fcntl(odd, F_SETFD, FD_CLOEXEC) == 0);
        int twice = fcntl(odd, F_DUPFD, 200);
        CHECK(twice >= 200);
        set_option(odd, SOL_SOCKET, SO_SNDBUF, 20000);
        int room = get_option(odd, SOL_SOCKET, SO_SNDBUF);
        int had = inherited(&gone);
        int urgent = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1), p[2];
        CHECK(send(urgent, "abc", 3, MSG_OOB) == 3 && send(urgent, "de", 2, 0) == 2);
        int rights = unix_client(SOCK_STREAM, NAME, sizeof(NAME) - 1);
        CHECK(pipe(p) == 0);
        say(rights, "before");
        send_fds(rights, p, 2, "two of them");
        int waiting[] = {shared, rights, silent}; /* clients that wait themselves */
        send_fds(rights, waiting, 3, "three more");
        say(rights, "after");
        close(p[0]);
        close(p[1]);
        int c = unix_client(SOCK_SEQPACKET, SEQ, sizeof(SEQ) - 1);
        say(c, "one");
        CHECK(send(c, "", 0, 0) == 0);
        say(c, "three");

        int ep = epoll_create1(0);
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, shared, &e) == 0);
        e.data.u64 = 99;
        e.events = EPOLLIN;
        other_ep = epoll_create1(0);
        CHECK(epoll_ctl(other_ep, EPOLL_CTL_ADD, shared, &e) == 0);
        pid_t waits[] = {block_process(SYS_poll, by_poll), block_process(SYS_epoll_wait, by_epoll)};
        pid_t writes = block_process(SYS_sendto, by_send);
        victim_ready();
        victim_wait();

        int s[7];
        for (int i = 0; i < 7; i++)
                CHECK((s[i] = accept(l, NULL, NULL)) >= 0);
        CHECK(fcntl(l, F_SETFL, O_NONBLOCK) == 0 && accept(l, NULL, NULL) == -1 && errno == EAGAIN);
        CHECK(unix_maker(s[0]) == getpid() && unix_maker(s[1]) == getpid() && unix_maker(s[4]) == gone);

        expect(s[1], "please");
        CHECK(epoll_wait(ep, &e, 1, 0) == 0);
        pid_t reads = block_process(SYS_recvfrom, by_recv);
        say(s[1], "r");
        CHECK(status_of(reads) == 3);
        say(s[1], "again");
        CHECK(status_of(waits[0]) == 3 && status_of(waits[1]) == 3);
        CHECK(epoll_wait(ep, &e, 1, 1000) == 1 && e.data.u64 == 98);
        CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, shared, NULL) == 0);
        expect(shared, "again");

        check_filled(s[2], filled);
        CHECK(status_of(writes) == 3);
        check_odd(odd, twice, room, s[3]);
        expect(s[4], "inherited");
        say(s[4], "for him");
        expect(had, "for him");
        check_urgent(s[5]);
        check_rights(s[6], s[1], s[0]);
        say(s[0], "at last");
        expect(silent, "at last");

        check_messages(m, c);
        victim_pass();
}
