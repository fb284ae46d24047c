/* A memfd that is mapped for writing and sealed against more of that: a thaw could not map it so.
 * victim: refuse=sealed */
#include <fcntl.h>
#include <sys/mman.h>

#include "../victim.h"

int main(void)
{
        char buf[8];
        int fd = memfd_create("sealed", MFD_ALLOW_SEALING);

        CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
        char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
        victim_ready();
        victim_wait();
        memcpy(p, "written", 8);
        CHECK(pread(fd, buf, 8, 0) == 8 && memcmp(buf, "written", 8) == 0 && pwrite(fd, "x", 1, 0) == -1);
        victim_pass();
}
