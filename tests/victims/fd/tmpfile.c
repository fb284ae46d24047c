/* O_TMPFILE: a file that has been given a name by now, and one that is given one after the thaw.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

static int name_it(int fd, const char *name)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

int main(void)
{
        struct stat st, st2;
        int named = open(".", O_TMPFILE | O_RDWR, 0600), later = open(".", O_TMPFILE | O_RDWR, 0640);

        if (named < 0 || later < 0)
                victim_skip("this file system has no O_TMPFILE");
        CHECK(write(named, "named", 5) == 5 && write(later, "later", 5) == 5 && name_it(named, "named") == 0);
        victim_ready();
        victim_wait();
        CHECK(fstat(named, &st) == 0 && stat("named", &st2) == 0 && st.st_ino == st2.st_ino && st.st_size == 5);
        CHECK(name_it(later, "later") == 0 && stat("later", &st) == 0 && st.st_size == 5 &&
              (st.st_mode & 0777) == 0640);
        victim_pass();
}
