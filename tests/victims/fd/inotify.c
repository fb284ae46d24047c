/* inotify: watches on files and folders with their numbers and masks report after the thaw; numbers go on from there.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "../victim.h"

static char buf[4096] __attribute__((aligned(8)));

static struct inotify_event *next(int fd)
{
        static ssize_t n, at;

        if (at >= n) {
                at = 0;
                for (int i = 0; i < 1000 && (n = read(fd, buf, sizeof(buf))) < 0; i++)
                        usleep(1000);
                CHECK(n > 0);
        }
        struct inotify_event *e = (struct inotify_event *)(buf + at);
        at += (ssize_t)sizeof(*e) + e->len;
        return e;
}

int main(void)
{
        CHECK(mkdir("d", 0755) == 0 && mkdir("e", 0755) == 0);
        close(open("f", O_WRONLY | O_CREAT, 0600));
        int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), first = inotify_add_watch(fd, "e", IN_ALL_EVENTS);
        CHECK(inotify_rm_watch(fd, first) == 0); /* leaves a hole in the numbers */
        int d = inotify_add_watch(fd, "d", IN_CREATE | IN_DELETE | IN_MOVED_TO),
            f = inotify_add_watch(fd, "f", IN_MODIFY | IN_CLOSE_WRITE);
        struct inotify_event *e = next(fd);
        CHECK(e->wd == first && e->mask & IN_IGNORED && d != first && f > d);
        victim_ready();
        victim_wait();
        close(open("d/new", O_WRONLY | O_CREAT, 0600));
        e = next(fd);
        CHECK(e->wd == d && e->mask == IN_CREATE && strcmp(e->name, "new") == 0);
        int w = open("f", O_WRONLY);
        CHECK(write(w, "x", 1) == 1);
        e = next(fd);
        CHECK(e->wd == f && e->mask == IN_MODIFY);
        close(w);
        e = next(fd);
        CHECK(e->wd == f && e->mask == IN_CLOSE_WRITE);
        int more = inotify_add_watch(fd, "e", IN_CREATE);
        CHECK(more != d && more != f && inotify_rm_watch(fd, d) == 0);
        e = next(fd);
        CHECK(e->wd == d && e->mask & IN_IGNORED);
        victim_pass();
}
