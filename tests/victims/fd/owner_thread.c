/* Descriptors whose signals go to one thread (F_OWNER_TID): to it they come after the thaw, and to no other; one was asked for by another
 * user. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "../victim.h"

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

static volatile int tid, told, descriptor, done;

static void on_data(int sig, siginfo_t *info, void *context)
{
        descriptor = info->si_fd;
        told = gettid();
}

static void *waiter(void *unused)
{
        tid = gettid();
        while (!done)
                usleep(1000);
        return unused;
}

int main(void)
{
        struct sigaction a = {.sa_sigaction = on_data, .sa_flags = SA_SIGINFO};
        struct f_owner_ex owner = {.type = F_OWNER_TID}, now;
        int s[2], quiet[2];
        uint32_t uids[2];
        pthread_t t;

        CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && pthread_create(&t, NULL, waiter, NULL) == 0);
        while (!tid)
                usleep(1000);
        owner.pid = tid;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(quiet) == 0);
        CHECK(fcntl(s[0], F_SETOWN_EX, &owner) == 0 && fcntl(s[0], F_SETSIG, SIGUSR1) == 0);
        CHECK(fcntl(s[0], F_SETFL, O_ASYNC) == 0);
        int other = syscall(SYS_setresuid, 5, 5, 0) == 0;
        CHECK(fcntl(quiet[0], F_SETOWN_EX, &owner) == 0);
        CHECK(!other || (syscall(SYS_setresuid, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0));
        victim_ready();
        victim_wait();
        CHECK(fcntl(s[0], F_GETOWN_EX, &now) == 0 && now.type == F_OWNER_TID && now.pid == tid &&
              fcntl(s[0], F_GETSIG) == SIGUSR1);
        CHECK(fcntl(quiet[0], F_GETOWN_EX, &now) == 0 && now.type == F_OWNER_TID && now.pid == tid);
        CHECK(fcntl(quiet[0], F_GETOWNER_UIDS, uids) == 0 && (!other || (uids[0] == 5 && uids[1] == 5)));
        CHECK(told == 0 && write(s[1], "x", 1) == 1);
        for (int i = 0; i < 5000 && !told; i++)
                usleep(1000);
        CHECK(told == tid && descriptor == s[0]);
        done = 1;
        CHECK(pthread_join(t, NULL) == 0);
        victim_pass();
}
