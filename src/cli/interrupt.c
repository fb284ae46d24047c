#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int pipe_fds[2] = {-EBADF, -EBADF};

static void on_signal(int signo)
{
        int saved = errno;
        unsigned char byte = (unsigned char)signo;

        if (write(pipe_fds[1], &byte, 1) < 0) {
                /* full: somebody is being told already */
        }
        errno = saved;
}

int cop_interrupt_catch(void)
{
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};

        if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        if (sigaction(SIGINT, &action, NULL) < 0 || sigaction(SIGTERM, &action, NULL) < 0)
                return -errno;
        return pipe_fds[0];
}

int cop_interrupt_take(void)
{
        unsigned char byte = 0;

        return read(pipe_fds[0], &byte, 1) == 1 ? byte : 0;
}
