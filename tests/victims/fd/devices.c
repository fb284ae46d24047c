/* Device nodes: null, zero, full, random, urandom, one whose name is gone, and standard streams that were closed. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "../victim.h"

int main(void)
{
        char a[16] = {0}, b[16];
        int n = open("/dev/null", O_WRONLY), z = open("/dev/zero", O_RDWR), f = open("/dev/full", O_RDWR),
            r = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

        CHECK(n >= 0 && z >= 0 && f >= 0 && r >= 0);
        /* Only where the user namespace is the first one can a device be made. */
        int gone = mknod("gone", S_IFCHR | 0600, makedev(1, 5)) == 0 ? open("gone", O_RDONLY) : -1;
        CHECK(gone < 0 || unlink("gone") == 0);
        close(STDIN_FILENO);
        victim_ready();
        victim_wait();
        CHECK(write(n, "x", 1) == 1 && read(z, a, 16) == 16 && a[3] == 0);
        CHECK(write(f, "x", 1) == -1 && errno == ENOSPC);
        CHECK(read(r, a, 16) == 16 && read(r, b, 16) == 16 && memcmp(a, b, 16) != 0);
        a[0] = 'x';
        CHECK(gone < 0 || (read(gone, a, 16) == 16 && a[0] == 0));
        CHECK(fcntl(STDIN_FILENO, F_GETFD) == -1);
        CHECK(open("/dev/null", O_RDONLY) == STDIN_FILENO);
        victim_pass();
}
