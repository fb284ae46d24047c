/* A master that is locked; packet mode, with what waits in both directions; a slave opened exclusively; output stopped by ^S, which ^Q
 * starts again, and by tcflow, with what was printed before and is to be printed then. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "../victim.h"

struct terminal {
        int master, slave;
        char name[64];
};

static struct terminal new_terminal(int locked)
{
        struct terminal t = {.master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK), .slave = -1};

        CHECK(t.master >= 0 && ptsname_r(t.master, t.name, sizeof(t.name)) == 0);
        if (!locked)
                CHECK(unlockpt(t.master) == 0 && (t.slave = open(t.name, O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0);
        return t;
}

static int reads(int fd, const char *text, size_t n)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char buf[64];

        return poll(&p, 1, 5000) == 1 && read(fd, buf, sizeof(buf)) == (ssize_t)n && memcmp(buf, text, n) == 0;
}

static int writable(const struct terminal *t)
{
        struct pollfd p = {.fd = t->slave, .events = POLLOUT};

        return poll(&p, 1, 0) == 1;
}

static void check_packets(const struct terminal *t)
{
        char buf[64];
        int now = 0;

        CHECK(ioctl(t->master, TIOCGPKT, &now) == 0 && now == 1);
        CHECK(reads(t->master, "\0before", 7) && reads(t->slave, "typed\n", 6));
        CHECK(write(t->slave, "out", 3) == 3 && reads(t->master, "\0out", 4));
        CHECK(tcflush(t->slave, TCIFLUSH) == 0 && read(t->master, buf, sizeof(buf)) == 1 && buf[0] & TIOCPKT_FLUSHREAD);
}

int main(void)
{
        struct terminal locked = new_terminal(1), packets = new_terminal(0), exclusive = new_terminal(0),
                        flow = new_terminal(0), xoff = new_terminal(0);
        struct termios t;
        int on = 1, now = 0;

        CHECK(tcgetattr(packets.slave, &t) == 0);
        t.c_lflag &= ~(tcflag_t)ECHO;
        CHECK(tcsetattr(packets.slave, TCSANOW, &t) == 0 && tcsetattr(xoff.slave, TCSANOW, &t) == 0);
        CHECK(ioctl(packets.master, TIOCPKT, &on) == 0);
        CHECK(write(packets.master, "typed\n", 6) == 6 && write(packets.slave, "before", 6) == 6);
        CHECK(ioctl(exclusive.slave, TIOCEXCL) == 0);
        CHECK(write(flow.slave, "early", 5) == 5 && tcflow(flow.slave, TCOOFF) == 0);
        CHECK(write(xoff.slave, "early", 5) == 5 && write(xoff.master, "\023", 1) == 1);
        for (int i = 0; i < 1000 && writable(&xoff); i++)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(ioctl(locked.master, TIOCGPTLCK, &now) == 0 && now == 1);
        CHECK(open(locked.name, O_RDWR | O_NOCTTY) == -1 && errno == EIO);
        check_packets(&packets);
        CHECK(ioctl(exclusive.slave, TIOCGEXCL, &now) == 0 && now == 1);
        CHECK(write(exclusive.slave, "mine", 4) == 4 && reads(exclusive.master, "mine", 4));
        CHECK(reads(flow.master, "early", 5) && !writable(&flow));
        CHECK(tcflow(flow.slave, TCOON) == 0 && writable(&flow) && write(flow.slave, "late", 4) == 4 &&
              reads(flow.master, "late", 4));
        CHECK(reads(xoff.master, "early", 5) && !writable(&xoff) && write(xoff.master, "\021", 1) == 1);
        for (int i = 0; i < 1000 && !writable(&xoff); i++)
                usleep(1000);
        CHECK(write(xoff.slave, "late", 4) == 4 && reads(xoff.master, "late", 4));
        victim_pass();
}
