/* Regular files: offset, append, O_PATH, close-on-exec, read-only, O_DIRECT-less flags set later, high descriptor numbers.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        char buf[64] = {0};
        int a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600),
            app = open("app", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);

        CHECK(write(a, "0123456789", 10) == 10 && lseek(a, 4, SEEK_SET) == 4 && write(app, "one", 3) == 3);
        int path = open("a", O_PATH | O_CLOEXEC), ro = open("a", O_RDONLY | O_NOATIME),
            sync = open("a", O_RDWR | O_DSYNC | O_NONBLOCK);
        int high = fcntl(ro, F_DUPFD, 900);
        CHECK(path >= 0 && ro >= 0 && high >= 900 && sync >= 0);
        int flags_sync = fcntl(sync, F_GETFL), flags_ro = fcntl(ro, F_GETFL), flags_path = fcntl(path, F_GETFL);
        victim_ready();
        victim_wait();
        CHECK(read(a, buf, 3) == 3 && memcmp(buf, "456", 3) == 0);
        CHECK(write(app, "two", 3) == 3);
        int back = open("app", O_RDONLY);
        CHECK(read(back, buf, 64) == 6 && memcmp(buf, "onetwo", 6) == 0);
        CHECK(fcntl(app, F_GETFD) == FD_CLOEXEC && fcntl(a, F_GETFD) == 0 && fcntl(path, F_GETFD) == FD_CLOEXEC);
        CHECK(fcntl(sync, F_GETFL) == flags_sync && fcntl(ro, F_GETFL) == flags_ro &&
              fcntl(path, F_GETFL) == flags_path);
        CHECK(read(path, buf, 1) == -1 && errno == EBADF);
        struct stat st, st2;
        CHECK(fstat(path, &st) == 0 && fstat(a, &st2) == 0 && st.st_ino == st2.st_ino);
        CHECK(read(ro, buf, 2) == 2 && lseek(high, 0, SEEK_CUR) == 2); /* one description */
        CHECK(write(ro, "x", 1) == -1);
        victim_pass();
}
