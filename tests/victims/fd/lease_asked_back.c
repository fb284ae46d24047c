/* File leases that are asked back just now, for reading and for writing, by one who waits and by some who do not: what is left of each
 * is the same, its holder, who has been told, is told nothing again, and who waits gets the file when it is given back.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile sig_atomic_t told;

static void on_signal(int sig)
{
        (void)sig;
        told++;
}

static int asked_back(const char *name, int access, int lease, int asked)
{
        int fd = open(name, access | O_CREAT, 0600);

        CHECK(fcntl(fd, F_SETLEASE, lease) == 0 && open(name, asked | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
        return fd;
}

int main(void)
{
        int st;

        CHECK(signal(SIGIO, on_signal) != SIG_ERR);
        int w = open("w", O_RDWR | O_CREAT, 0600);
        CHECK(fcntl(w, F_SETLEASE, F_WRLCK) == 0);
        pid_t waits = fork();
        if (waits == 0) {
                close(w);
                _exit(open("w", O_RDONLY) >= 0 ? 7 : 1);
        }
        while (fcntl(w, F_GETLEASE) != F_RDLCK)
                usleep(1000);
        int r = asked_back("r", O_RDONLY, F_RDLCK, O_WRONLY), all = asked_back("all", O_RDWR, F_WRLCK, O_WRONLY),
            alone = asked_back("alone", O_RDONLY, F_WRLCK, O_WRONLY), more = dup(all);
        pid_t has_it = fork();
        if (has_it == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && fcntl(all, F_GETLEASE) == F_UNLCK && access("given", F_OK) < 0; i++)
                        usleep(1000);
                _exit(access("given", F_OK) == 0 && open("all", O_WRONLY | O_NONBLOCK) >= 0 ? 7 : 1);
        }
        CHECK(told == 4 && more >= 0);
        victim_ready();
        victim_wait();
        CHECK(told == 4);
        CHECK(fcntl(w, F_GETLEASE) == F_RDLCK && fcntl(r, F_GETLEASE) == F_UNLCK && fcntl(all, F_GETLEASE) == F_UNLCK &&
              fcntl(alone, F_GETLEASE) == F_UNLCK && fcntl(more, F_GETLEASE) == F_UNLCK);
        CHECK(open("r", O_RDONLY | O_NONBLOCK) >= 0); /* in nobody's way, unlike this one */
        CHECK(open("alone", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
        CHECK(open("all", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK && told == 4);
        CHECK(fcntl(more, F_SETLEASE, F_UNLCK) == 0 && fcntl(alone, F_SETLEASE, F_UNLCK) == 0);
        CHECK(open("alone", O_RDONLY | O_NONBLOCK) >= 0 && close(open("given", O_WRONLY | O_CREAT, 0600)) == 0);
        CHECK(fcntl(w, F_SETLEASE, F_UNLCK) == 0);
        CHECK(waitpid(waits, &st, 0) == waits && WIFEXITED(st) && WEXITSTATUS(st) == 7);
        CHECK(waitpid(has_it, &st, 0) == has_it && WIFEXITED(st) && WEXITSTATUS(st) == 7);
        CHECK(told == 4);
        victim_pass();
}
