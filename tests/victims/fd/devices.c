/* Device nodes: null, zero, full, random, urandom, and standard streams that were closed. */
#include <fcntl.h>

#include "../victim.h"

int main(void)
{
        char a[16] = {0}, b[16];
        int n = open("/dev/null", O_WRONLY), z = open("/dev/zero", O_RDWR), f = open("/dev/full", O_RDWR),
            r = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

        CHECK(n >= 0 && z >= 0 && f >= 0 && r >= 0);
        close(STDIN_FILENO);
        victim_ready();
        victim_wait();
        CHECK(write(n, "x", 1) == 1 && read(z, a, 16) == 16 && a[3] == 0);
        CHECK(write(f, "x", 1) == -1 && errno == ENOSPC);
        CHECK(read(r, a, 16) == 16 && read(r, b, 16) == 16 && memcmp(a, b, 16) != 0);
        CHECK(fcntl(STDIN_FILENO, F_GETFD) == -1);
        CHECK(open("/dev/null", O_RDONLY) == STDIN_FILENO);
        victim_pass();
}
