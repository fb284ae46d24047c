/* A file of a single thread in /proc: a thaw makes threads after descriptors.
 * victim: refuse=comm of a single thread */
#include <fcntl.h>

#include "../sleeper.h"

int main(void)
{
        char path[64], name[16];

        snprintf(path, sizeof(path), "/proc/self/task/%d/comm", start_sleeper());
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        victim_ready();
        victim_wait();
        CHECK(read(fd, name, sizeof(name)) > 0);
        victim_pass();
}
