/* File leases, for reading and for writing: still there, their owner is told by the signal it chose when another opens the file.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>

#include "../victim.h"

static volatile sig_atomic_t told;

static void on_signal(int sig, siginfo_t *info, void *context)
{
        (void)sig;
        (void)context;
        told = info->si_fd;
}

int main(void)
{
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
        int r = open("r", O_RDONLY | O_CREAT, 0600), w = open("w", O_RDWR | O_CREAT, 0600);

        CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && fcntl(w, F_SETSIG, SIGUSR1) == 0);
        CHECK(fcntl(r, F_SETLEASE, F_RDLCK) == 0 && fcntl(w, F_SETLEASE, F_WRLCK) == 0);
        victim_ready();
        victim_wait();
        CHECK(fcntl(r, F_GETLEASE) == F_RDLCK && fcntl(w, F_GETLEASE) == F_WRLCK && told == 0);
        CHECK(open("r", O_RDONLY | O_NONBLOCK) >= 0);
        CHECK(open("w", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK && told == w);
        CHECK(fcntl(w, F_SETLEASE, F_UNLCK) == 0 && open("w", O_RDONLY | O_NONBLOCK) >= 0);
        victim_pass();
}
