/* Flags that fcntl has set on descriptions of all kinds since they were made. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "../victim.h"

#define SET (O_APPEND | O_NONBLOCK)
enum { N = 14 };

int main(void)
{
        int fd[N], flags[N], n = 0, pair[2];
        sigset_t none;

        sigemptyset(&none);
        fd[n++] = memfd_create("memory", 0);
        fd[n++] = open("file", O_RDWR | O_CREAT, 0600);
        fd[n++] = open("removed", O_RDWR | O_CREAT, 0600);
        fd[n++] = epoll_create1(0);
        fd[n++] = eventfd(0, 0);
        fd[n++] = timerfd_create(CLOCK_MONOTONIC, 0);
        fd[n++] = signalfd(-1, &none, 0);
        fd[n++] = inotify_init1(0);
        fd[n++] = open("/dev/null", O_RDWR);
        fd[n++] = open(".", O_RDONLY);
        CHECK(pipe(pair) == 0);
        fd[n++] = pair[0];
        fd[n++] = pair[1];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && unlink("removed") == 0);
        fd[n++] = pair[0];
        fd[n++] = pair[1];
        for (int i = 0; i < N; i++) {
                CHECK(fd[i] >= 0 && fcntl(fd[i], F_SETFL, SET) == 0);
                flags[i] = fcntl(fd[i], F_GETFL);
        }
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++)
                if (fcntl(fd[i], F_GETFL) != flags[i])
                        victim_fail("descriptor %d of the list has %#o, not %#o", i, fcntl(fd[i], F_GETFL), flags[i]);
        victim_pass();
}
