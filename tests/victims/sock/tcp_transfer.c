/* A transfer of 40 MB both ways between two processes that is under way at the freeze: every byte comes in its order. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../sock.h"

#define TOTAL (40L << 20)
static volatile long *moved;

static unsigned char byte_at(long i)
{
        return (unsigned char)(i * 131 + (i >> 13) * 7 + (i >> 21));
}

/* Sends and receives at once; 0 when all is right. */
static int run(int fd, int gate)
{
        static unsigned char out[65536], in[65536];
        long sent = 0, got = 0;

        fcntl(fd, F_SETFL, O_NONBLOCK);
        while (sent < TOTAL || got < TOTAL) {
                struct pollfd p = {fd, (short)((got < TOTAL ? POLLIN : 0) | (sent < TOTAL ? POLLOUT : 0)), 0};
                poll(&p, 1, 1000);
                if (sent < TOTAL && p.revents & POLLOUT) {
                        long n = TOTAL - sent < (long)sizeof(out) ? TOTAL - sent : (long)sizeof(out);
                        for (long i = 0; i < n; i++)
                                out[i] = byte_at(sent + i);
                        ssize_t k = send(fd, out, (size_t)n, 0);
                        if (k > 0)
                                sent += k;
                        else if (k < 0 && errno != EAGAIN)
                                victim_fail("send after %ld bytes (errno %d %s)", sent, errno, strerror(errno));
                }
                if (p.revents & (POLLIN | POLLHUP) && got < TOTAL) {
                        ssize_t k = recv(fd, in, sizeof(in), 0);
                        if (k == 0 || (k < 0 && errno != EAGAIN))
                                victim_fail("recv after %ld bytes: %zd (errno %d %s)", got, k, errno, strerror(errno));
                        for (ssize_t i = 0; i < k; i++)
                                if (in[i] != byte_at(got + i))
                                        victim_fail("byte %ld is another one", got + i);
                        if (k > 0)
                                got += k;
                }
                moved[gate] = got;
                /* A quarter of it before the freeze, slowly on till the thaw. */
                if (got > TOTAL / 4 && !victim_gone())
                        usleep(20000);
        }
        return 0;
}

int main(void)
{
        int s[2], st;

        moved = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        tcp_pair(s);
        pid_t a = fork();
        if (a == 0) {
                close(s[1]);
                _exit(run(s[0], 0));
        }
        pid_t b = fork();
        if (b == 0) {
                close(s[0]);
                _exit(run(s[1], 1));
        }
        close(s[0]);
        close(s[1]);
        while (moved[0] < TOTAL / 5 || moved[1] < TOTAL / 5)
                usleep(1000);
        victim_ready();
        CHECK(waitpid(a, &st, 0) == a);
        if (st)
                victim_fail("one side: check %d", WEXITSTATUS(st));
        CHECK(waitpid(b, &st, 0) == b);
        if (st)
                victim_fail("the other side: check %d", WEXITSTATUS(st));
        victim_wait();
        victim_pass();
}
