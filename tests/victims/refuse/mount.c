/* A file system that the program has mounted itself: refused, since nothing of it would be there after a thaw.
 * victim: refuse=is mounted at */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        CHECK(mkdir("m", 0700) == 0);
        if (mount("none", "m", "tmpfs", 0, NULL) != 0)
                victim_skip("may not mount");
        int fd = open("m/file", O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && write(fd, "x", 1) == 1);
        victim_ready();
        victim_wait();
        CHECK(access("m/file", F_OK) == 0 && close(fd) == 0 && umount("m") == 0 && access("m/file", F_OK) != 0);
        victim_pass();
}
