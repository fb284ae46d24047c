/* F_SETOWN, F_SETSIG and O_ASYNC: the signal comes when data arrives after the thaw, to a process or a group, and tells the number
 * of the descriptor; an owner that is not yet asked for is kept, too, and so is in whose name it was set. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../victim.h"

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

static volatile int got, from, io;
static void on(int sig, siginfo_t *info, void *context)
{
        (void)context;
        from = info->si_fd;
        got = sig;
}

static void on_io(int sig)
{
        (void)sig;
        io = 1;
}

int main(void)
{
        int s[2], p[2], later[2], st;
        struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
        struct f_owner_ex group = {F_OWNER_PGRP, getpid()}, now;
        uint32_t uids[2];

        CHECK(getpgrp() == getpid() && sigaction(SIGUSR1, &a, NULL) == 0);
        signal(SIGIO, on_io);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0 && pipe(later) == 0);
        CHECK(fcntl(s[0], F_SETOWN, getpid()) == 0 && fcntl(s[0], F_SETSIG, SIGUSR1) == 0 &&
              fcntl(s[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
        CHECK(fcntl(p[0], F_SETOWN_EX, &group) == 0 && fcntl(p[0], F_SETFL, O_ASYNC) == 0);
        CHECK(fcntl(later[0], F_SETOWN, getpid()) == 0);
        pid_t kid = fork();
        if (kid == 0) {
                /* As another user, who may not signal its parent: nothing comes of what this one asks for. */
                int other[2];
                struct f_owner_ex parent = {F_OWNER_PID, getppid()};
                if (pipe(other) < 0 || setresuid(1, 1, 0) < 0 || fcntl(other[0], F_SETOWN_EX, &parent) < 0 ||
                    setresuid(0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0)
                        _exit(1);
                io = 0;
                victim_wait();
                if (fcntl(other[0], F_GETOWN) != getppid() || fcntl(other[0], F_GETOWNER_UIDS, uids) != 0)
                        _exit(2);
                _exit(uids[0] == 1 && uids[1] == 1 ? 0 : 3);
        }
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(waitpid(kid, &st, 0) == kid && WIFEXITED(st) && WEXITSTATUS(st) == 0);
        CHECK(fcntl(s[0], F_GETOWN) == getpid() && fcntl(s[0], F_GETSIG) == SIGUSR1 && fcntl(s[0], F_GETFL) & O_ASYNC);
        CHECK(write(s[1], "x", 1) == 1);
        for (int i = 0; i < 2000 && !got; i++)
                usleep(1000);
        CHECK(got == SIGUSR1 && from == s[0]);
        CHECK(fcntl(p[0], F_GETOWN_EX, &now) == 0 && now.type == F_OWNER_PGRP && now.pid == getpgrp());
        io = 0;
        CHECK(write(p[1], "x", 1) == 1);
        for (int i = 0; i < 2000 && !io; i++)
                usleep(1000);
        CHECK(io == 1 && fcntl(later[0], F_GETOWN) == getpid() && !(fcntl(later[0], F_GETFL) & O_ASYNC));
        io = 0;
        CHECK(fcntl(later[0], F_SETFL, O_ASYNC) == 0 && write(later[1], "x", 1) == 1);
        for (int i = 0; i < 2000 && !io; i++)
                usleep(1000);
        CHECK(io == 1);
        victim_pass();
}
