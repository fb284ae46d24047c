/* Blocked in read and write of a pipe, accept, recv, recvmsg, eventfd: each ends by what comes after the thaw. */
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "../blocked.h"

static int p[2], full[2], s[2], v[2], l, ev;
static struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0blocked"};

static long by_read(void)
{
        char buf[16];
        return read(p[0], buf, sizeof(buf));
}
static long by_write(void)
{
        static char buf[100000];
        size_t done = 0;
        ssize_t n;
        while (done < sizeof(buf) && (n = write(full[1], buf + done, sizeof(buf) - done)) > 0)
                done += (size_t)n; /* the kernel ends a write in the middle when a task is stopped */
        return (long)done;
}
static long by_accept(void)
{
        return accept4(l, NULL, NULL, SOCK_CLOEXEC) >= 0 ? 0 : -1;
}
static long by_recv(void)
{
        char buf[16];
        ssize_t n = 0, k = 1;
        for (; n < 6 && k > 0; n += k)
                k = recv(s[0], buf, 6 - (size_t)n, MSG_WAITALL); /* likewise */
        return n;
}
static long by_readv(void)
{
        char a[2], b[9];
        struct iovec iov[] = {{a, 2}, {b, 9}};
        return readv(v[0], iov, 2);
}
static long by_eventfd(void)
{
        uint64_t n;
        return read(ev, &n, 8) == 8 ? (long)n : -1;
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "read", .nr = SYS_read, .run = by_read, .want = 5},
                {.name = "write", .nr = SYS_write, .run = by_write, .want = 100000},
                {.name = "accept", .nr = SYS_accept4, .run = by_accept},
                {.name = "recv", .nr = SYS_recvfrom, .run = by_recv, .want = 6},
                {.name = "readv", .nr = SYS_readv, .run = by_readv, .want = 7},
                {.name = "eventfd", .nr = SYS_read, .run = by_eventfd, .want = 77},
        };
        char buf[4096];

        CHECK(pipe(p) == 0 && pipe(full) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 &&
              socketpair(AF_UNIX, SOCK_DGRAM, 0, v) == 0);
        l = socket(AF_UNIX, SOCK_STREAM, 0);
        ev = eventfd(0, 0);
        CHECK(bind(l, (struct sockaddr *)&name, sizeof(sa_family_t) + 8) == 0 && listen(l, 1) == 0);
        block_all(rows, ROWS(rows));
        CHECK(write(s[1], "123", 3) == 3);
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(write(p[1], "hello", 5) == 5 && write(s[1], "456", 3) == 3 && write(v[1], "7777777", 7) == 7);
        uint64_t n = 77;
        CHECK(write(ev, &n, 8) == 8);
        for (size_t got = 0; got < 100000;) {
                ssize_t k = read(full[0], buf, sizeof(buf));
                CHECK(k > 0);
                got += (size_t)k;
        }
        int c = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(c, (struct sockaddr *)&name, sizeof(sa_family_t) + 8) == 0);
        join_all(rows, ROWS(rows));
        victim_pass();
}
