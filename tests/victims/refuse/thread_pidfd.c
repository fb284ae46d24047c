/* A pidfd of a single thread: a thaw makes threads after descriptors.
 * victim: refuse=pidfd of a single thread */
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static volatile pid_t tid;

static void *thread(void *argument)
{
        (void)argument;
        tid = (pid_t)syscall(SYS_gettid);
        for (;;)
                pause();
        return NULL;
}

int main(void)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
        while (tid == 0)
                usleep(100);
        int fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
        if (fd < 0)
                victim_skip("no PIDFD_THREAD here");
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
        victim_pass();
}
