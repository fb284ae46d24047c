/* A pty: both ends with data in both directions, termios, window size, packet-less raw mode, the name of the slave, whose it is; that of
 * one with which nobody has begun. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#include "../victim.h"

int main(void)
{
        char name[64], now[64], unused[64], buf[64] = {0};
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
        CHECK(fchown(s, 1234, 4321) == 0 && fchmod(s, 0640) == 0);
        int fresh = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(fresh >= 0 && unlockpt(fresh) == 0 && ptsname_r(fresh, unused, sizeof(unused)) == 0);
        CHECK(chown(unused, 55, 66) == 0 && chmod(unused, 0606) == 0);
        victim_ready();
        victim_wait();
        CHECK(ptsname_r(m, now, sizeof(now)) == 0 && strcmp(name, now) == 0 && isatty(s));
        struct stat st;
        CHECK(fstat(s, &st) == 0 && st.st_uid == 1234 && st.st_gid == 4321 && (st.st_mode & 07777) == 0640);
        CHECK(stat(unused, &st) == 0 && st.st_uid == 55 && st.st_gid == 66 && (st.st_mode & 07777) == 0606);
        struct pollfd p = {.fd = fresh};
        CHECK(poll(&p, 1, 0) == 0 && "its other end has not been opened");
        CHECK(tcgetattr(s, &t2) == 0 && memcmp(&t, &t2, sizeof(t)) == 0);
        CHECK(ioctl(s, TIOCGWINSZ, &w2) == 0 && memcmp(&w, &w2, sizeof(w)) == 0);
        CHECK(ioctl(s, FIONREAD, &one) == 0 && one == 5 && read(s, buf, 64) == 5 && memcmp(buf, "typed", 5) == 0);
        CHECK(read(m, buf, 64) == 7 && memcmp(buf, "printed", 7) == 0);
        CHECK(write(m, "more", 4) == 4 && read(s, buf, 64) == 4 && write(s, "yes", 3) == 3 && read(m, buf, 64) == 3);
        int again = open(name, O_RDWR | O_NOCTTY);
        CHECK(again >= 0 && write(again, "x", 1) == 1 && read(m, buf, 64) == 1);
        victim_pass();
}
