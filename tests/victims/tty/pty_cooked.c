/* A pty in canonical mode with echo: a line typed in part before the thaw is a line after it; erase works; end of file.
 * What was typed is in the queue of the line discipline, not yet to be read. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "../victim.h"

int main(void)
{
        char name[64], buf[128] = {0};
        int m = posix_openpt(O_RDWR | O_NOCTTY);

        CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0);
        int s = open(name, O_RDWR | O_NOCTTY);
        CHECK(write(m, "whole line\n", 11) == 11);
        victim_ready();
        victim_wait();
        CHECK(read(s, buf, sizeof(buf)) == 11 && memcmp(buf, "whole line\n", 11) == 0);
        ssize_t n = read(m, buf, sizeof(buf)); /* the echo */
        CHECK(n == 12 && memcmp(buf, "whole line\r\n", 12) == 0);
        CHECK(write(m, "ab\177c\n", 5) == 5 && read(s, buf, sizeof(buf)) == 3 && memcmp(buf, "ac\n", 3) == 0);
        CHECK(write(m, "\4", 1) == 1 && read(s, buf, sizeof(buf)) == 0);
        victim_pass();
}
