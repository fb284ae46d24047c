/* signalfd: its mask, a signal pending in it, new ones after the thaw, one in an epoll. */
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "../victim.h"

int main(void)
{
        sigset_t set, two;
        struct signalfd_siginfo info;

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGRTMIN + 4);
        two = set;
        sigaddset(&two, SIGUSR2);
        sigprocmask(SIG_BLOCK, &two, NULL);
        int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), e = epoll_create1(0);
        struct epoll_event ev = {.events = EPOLLIN}, got;
        CHECK(fd >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev) == 0);
        CHECK(sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 99}) == 0 && kill(getpid(), SIGUSR2) == 0);
        victim_ready();
        victim_wait();
        CHECK(epoll_wait(e, &got, 1, 100) == 1);
        CHECK(read(fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == (uint32_t)SIGRTMIN + 4 &&
              info.ssi_int == 99);
        CHECK(read(fd, &info, sizeof(info)) == -1 && errno == EAGAIN); /* SIGUSR2 is not in its mask */
        CHECK(kill(getpid(), SIGUSR1) == 0 && epoll_wait(e, &got, 1, 100) == 1);
        CHECK(read(fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR1 &&
              info.ssi_pid == (uint32_t)getpid());
        victim_pass();
}
