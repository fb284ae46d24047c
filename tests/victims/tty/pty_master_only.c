/* A pty of which both ends are open, the slave in a child only, raw, in use in both directions, without a session. */
#include <fcntl.h>
#include <sys/wait.h>
#include <termios.h>

#include "../victim.h"

int main(void)
{
        char name[64], c;
        struct termios t;
        int m = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), st;

        CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0);
        int s = open(name, O_RDWR | O_NOCTTY);
        CHECK(tcgetattr(s, &t) == 0);
        cfmakeraw(&t);
        CHECK(tcsetattr(s, TCSANOW, &t) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                close(m);
                while (read(s, &c, 1) == 1 && c != 'q')
                        if (write(s, &(char){(char)(c + 1)}, 1) != 1)
                                _exit(2);
                _exit(c == 'q' ? 0 : 1);
        }
        close(s);
        CHECK(write(m, "a", 1) == 1 && read(m, &c, 1) == 1 && c == 'b');
        victim_ready();
        victim_wait();
        CHECK(write(m, "k", 1) == 1 && read(m, &c, 1) == 1 && c == 'l' && write(m, "q", 1) == 1);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        CHECK(read(m, &c, 1) == -1 && errno == EIO);
        victim_pass();
}
