/* A process whose working folder lies on a file system that is mounted nowhere any more.
 * victim: refuse=as its cwd, which its path does not lead to */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        int here = open(".", O_PATH);

        CHECK(here >= 0 && mkdir("place", 0700) == 0);
        if (mount("none", "place", "tmpfs", 0, NULL) < 0)
                victim_skip("nothing can be mounted");
        CHECK(mkdir("place/tmp", 0700) == 0 && chdir("place/tmp") == 0 && faccessat(here, "place/tmp", F_OK, 0) == 0);
        close(open("file", O_WRONLY | O_CREAT, 0600));
        CHECK(umount2("../../place", MNT_DETACH) == 0 || umount2("/proc/self/cwd/..", MNT_DETACH) == 0);
        victim_ready();
        while (faccessat(here, "go", F_OK, 0) < 0)
                usleep(2000);
        CHECK(access("file", F_OK) == 0);
        victim_pass();
}
