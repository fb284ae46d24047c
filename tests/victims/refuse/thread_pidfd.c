/* A pidfd of a single thread: a thaw makes threads after descriptors.
 * victim: refuse=pidfd of a single thread */
#include <fcntl.h>

#include "../sleeper.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

int main(void)
{
        int fd = (int)syscall(SYS_pidfd_open, start_sleeper(), PIDFD_THREAD);
        if (fd < 0)
                victim_skip("no PIDFD_THREAD here");
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
        victim_pass();
}
