/* Removed folders held open: one within another, two descriptions of one, O_PATH; mode and no name, nothing can be made in them. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        char entries[512];
        struct stat st, same;

        CHECK(mkdir("outer", 0750) == 0 && mkdir("outer/inner", 0700) == 0);
        int inner = open("outer/inner", O_RDONLY | O_DIRECTORY), outer = open("outer", O_RDONLY | O_DIRECTORY),
            again = open("outer", O_RDONLY), path = open("outer", O_PATH);
        CHECK(inner >= 0 && outer >= 0 && again >= 0 && path >= 0 && rmdir("outer/inner") == 0 && rmdir("outer") == 0);
        victim_ready();
        victim_wait();
        CHECK(fstat(outer, &st) == 0 && st.st_nlink == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0750);
        CHECK(fstat(again, &same) == 0 && same.st_ino == st.st_ino);
        CHECK(fstat(path, &same) == 0 && same.st_ino == st.st_ino);
        CHECK(fstat(inner, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 07777) == 0700);
        CHECK(mkdirat(outer, "new", 0700) == -1 && errno == ENOENT);
        CHECK(syscall(SYS_getdents64, inner, entries, sizeof(entries)) <= 0);
        CHECK(fchdir(outer) == 0 && access("outer", F_OK) == -1);
        victim_pass();
}
