/* fanotify is refused by name.
 * victim: refuse=fanotify */
#include <fcntl.h>
#include <sys/fanotify.h>

#include "../victim.h"

int main(void)
{
        int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_NONBLOCK, O_RDONLY);

        if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD, FAN_CREATE | FAN_ONDIR, AT_FDCWD, ".") != 0)
                victim_skip("no fanotify here");
        victim_ready();
        victim_wait();
        char buf[512];
        close(open("made", O_WRONLY | O_CREAT, 0600));
        CHECK(read(fd, buf, sizeof(buf)) > 0);
        victim_pass();
}
