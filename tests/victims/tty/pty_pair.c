/* A pty: both ends with data in both directions, termios, window size, packet-less raw mode, the name of the slave. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "../victim.h"

int main(void)
{
        char name[64], now[64], buf[64] = {0};
        struct termios t = {0}, t2 = {0}; /* compared with their padding */
        struct winsize w = {33, 99, 5, 6}, w2;
        int m = posix_openpt(O_RDWR | O_NOCTTY), one = 0;

        CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0);
        int s = open(name, O_RDWR | O_NOCTTY);
        CHECK(s >= 0 && tcgetattr(s, &t) == 0);
        cfmakeraw(&t);
        t.c_cc[VMIN] = 3;
        t.c_cc[VINTR] = 7;
        t.c_iflag |= IXON;
        cfsetspeed(&t, B9600);
        CHECK(tcsetattr(s, TCSANOW, &t) == 0 && tcgetattr(s, &t) == 0 && ioctl(m, TIOCSWINSZ, &w) == 0);
        CHECK(write(m, "typed", 5) == 5 && write(s, "printed", 7) == 7);
        victim_ready();
        victim_wait();
        CHECK(ptsname_r(m, now, sizeof(now)) == 0 && strcmp(name, now) == 0 && isatty(s));
        CHECK(tcgetattr(s, &t2) == 0 && memcmp(&t, &t2, sizeof(t)) == 0);
        CHECK(ioctl(s, TIOCGWINSZ, &w2) == 0 && memcmp(&w, &w2, sizeof(w)) == 0);
        CHECK(ioctl(s, FIONREAD, &one) == 0 && one == 5 && read(s, buf, 64) == 5 && memcmp(buf, "typed", 5) == 0);
        CHECK(read(m, buf, 64) == 7 && memcmp(buf, "printed", 7) == 0);
        CHECK(write(m, "more", 4) == 4 && read(s, buf, 64) == 4 && write(s, "yes", 3) == 3 && read(m, buf, 64) == 3);
        int again = open(name, O_RDWR | O_NOCTTY);
        CHECK(again >= 0 && write(again, "x", 1) == 1 && read(m, buf, 64) == 1);
        victim_pass();
}
