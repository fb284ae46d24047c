/* inotify with events that were not read before the freeze: they come, or an overflow tells that some are lost.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        static char buf[4096] __attribute__((aligned(8)));

        CHECK(mkdir("d", 0755) == 0);
        int fd = inotify_init1(IN_NONBLOCK), d = inotify_add_watch(fd, "d", IN_CREATE);
        close(open("d/before", O_WRONLY | O_CREAT, 0600));
        victim_ready();
        victim_wait();
        ssize_t n = read(fd, buf, sizeof(buf));
        struct inotify_event *e = (struct inotify_event *)buf;
        CHECK(n > 0 && ((e->wd == d && strcmp(e->name, "before") == 0) || e->mask & IN_Q_OVERFLOW));
        victim_pass();
}
