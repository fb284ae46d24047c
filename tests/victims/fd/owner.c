/* F_SETOWN, F_SETSIG and O_ASYNC: the signal comes when data arrives after the thaw; F_SETLEASE-less files keep hints. */
#include <fcntl.h>
#include <sys/socket.h>

#include "../victim.h"

static volatile int got;
static void on(int sig)
{
        got = sig;
}

int main(void)
{
        int s[2];

        signal(SIGUSR1, on);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        CHECK(fcntl(s[0], F_SETOWN, getpid()) == 0 && fcntl(s[0], F_SETSIG, SIGUSR1) == 0 &&
              fcntl(s[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
        victim_ready();
        victim_wait();
        CHECK(fcntl(s[0], F_GETOWN) == getpid() && fcntl(s[0], F_GETSIG) == SIGUSR1 && fcntl(s[0], F_GETFL) & O_ASYNC);
        CHECK(write(s[1], "x", 1) == 1);
        for (int i = 0; i < 2000 && !got; i++)
                usleep(1000);
        CHECK(got == SIGUSR1);
        victim_pass();
}
