/* A file whose name was removed while another one lies where the tree cannot see it: under a mount.
 * victim: refuse=another one is not found
 * victim: mounts=own */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        CHECK(mkdir("hidden", 0700) == 0);
        int fd = open("l", O_RDWR | O_CREAT, 0600);
        CHECK(write(fd, "linked", 6) == 6 && link("l", "hidden/l") == 0 && unlink("l") == 0);
        if (mount("none", "hidden", "tmpfs", 0, NULL) < 0)
                victim_skip("nothing can be mounted");
        victim_ready();
        victim_wait();
        CHECK(write(fd, "-more", 5) == 5 && umount("hidden") == 0);
        char buf[16] = {0};
        int k = open("hidden/l", O_RDONLY);
        CHECK(read(k, buf, sizeof(buf)) == 11 && memcmp(buf, "linked-more", 11) == 0);
        victim_pass();
}
