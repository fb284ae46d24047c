/* An open file of a file system that is mounted nowhere any more: by the path that the kernel tells, another one would be opened.
 * victim: refuse=a mount hides it, or has been removed */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        char buf[16] = {0};

        CHECK(mkdir("place", 0700) == 0);
        if (mount("none", "place", "tmpfs", 0, NULL) < 0)
                victim_skip("nothing can be mounted");
        int fd = open("place/file", O_RDWR | O_CREAT, 0600);
        CHECK(write(fd, "detached", 8) == 8 && umount2("place", MNT_DETACH) == 0);
        victim_ready();
        victim_wait();
        CHECK(pread(fd, buf, sizeof(buf), 0) == 8 && memcmp(buf, "detached", 8) == 0);
        victim_pass();
}
