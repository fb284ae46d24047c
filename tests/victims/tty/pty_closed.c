/* Ptys with one end closed: a master whose slave is gone, a slave whose master is gone (hung up), one never opened. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "../victim.h"

static int master(char name[64])
{
        int m = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);

        CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, 64) == 0);
        return m;
}

int main(void)
{
        char n1[64], n2[64], n3[64], buf[16];
        int m = master(n1), m2 = master(n2), never = master(n3);
        int s = open(n1, O_RDWR | O_NOCTTY), s2 = open(n2, O_RDWR | O_NOCTTY);

        CHECK(s >= 0 && s2 >= 0);
        close(s);
        close(m2);
        victim_ready();
        victim_wait();
        CHECK(read(m, buf, 16) == -1 && errno == EIO);
        CHECK(read(s2, buf, 16) == 0);
        s = open(n1, O_RDWR | O_NOCTTY);
        CHECK(s >= 0 && write(s, "x", 1) == 1 && read(m, buf, 16) == 1);
        s = open(n3, O_RDWR | O_NOCTTY);
        CHECK(s >= 0 && write(s, "x", 1) == 1 && read(never, buf, 16) == 1);
        victim_pass();
}
