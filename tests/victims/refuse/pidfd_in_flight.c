/* A pidfd in the queue of a socket: queues are filled before there are processes.
 * victim: refuse=has a pidfd or a file of /proc, /dev/tty or a socket in flight (fd 4) */
#include <sys/syscall.h>

#include "../sock.h"

int main(void)
{
        int pair[2], pidfd, got[8];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
        send_fds(pair[0], &pidfd, 1, "me");
        close(pidfd);
        victim_ready();
        victim_wait();
        CHECK(receive_fds(pair[1], got, "me") == 1);
        victim_pass();
}
