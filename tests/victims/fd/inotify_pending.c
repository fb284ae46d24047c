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
        int quiet = inotify_init1(IN_CLOEXEC), dq = inotify_add_watch(quiet, "d", IN_DELETE | IN_OPEN);
        close(open("d/before", O_WRONLY | O_CREAT, 0600));
        CHECK(read(quiet, buf, sizeof(buf)) > 0);
        int open_file = open("d/before", O_RDONLY);
        CHECK(open_file >= 0 && read(quiet, buf, sizeof(buf)) > 0);
        victim_ready();
        victim_wait();
        ssize_t n = read(fd, buf, sizeof(buf));
        struct inotify_event *e = (struct inotify_event *)buf;
        CHECK(n > 0 && ((e->wd == d && strcmp(e->name, "before") == 0) || e->mask & IN_Q_OVERFLOW));
        CHECK(n == (ssize_t)sizeof(*e) + e->len && read(fd, buf, sizeof(buf)) == -1 && errno == EAGAIN);
        close(open("d/after", O_WRONLY | O_CREAT, 0600));
        n = read(fd, buf, sizeof(buf));
        CHECK(n > 0 && e->wd == d && e->mask == IN_CREATE && strcmp(e->name, "after") == 0);
        /* The other one has nothing to tell of the thaw, which opened the file in its folder. */
        CHECK(read(quiet, buf, sizeof(buf)) > 0 && e->wd == dq && e->mask == IN_OPEN && strcmp(e->name, "after") == 0);
        CHECK(unlink("d/after") == 0 && read(quiet, buf, sizeof(buf)) > 0 && e->wd == dq && e->mask == IN_DELETE);
        victim_pass();
}
