/* Deleted open files: contents, offset, size, sparse ones, writable on, two descriptions of one, O_TMPFILE, a hard link left.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked,fork */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        char buf[64] = {0};
        struct stat st, st2;
        int a = open("a", O_RDWR | O_CREAT, 0600), b = open("a", O_RDONLY), s = open("s", O_RDWR | O_CREAT, 0644),
            l = open("l", O_RDWR | O_CREAT, 0600);

        CHECK(write(a, "0123456789", 10) == 10 && lseek(a, 2, SEEK_SET) == 2 && lseek(b, 5, SEEK_SET) == 5);
        CHECK(ftruncate(s, 100 << 20) == 0 && pwrite(s, "mid", 3, 50 << 20) == 3);
        CHECK(write(l, "linked", 6) == 6 && link("l", "kept") == 0 && unlink("a") == 0 && unlink("s") == 0 &&
              unlink("l") == 0);
        int t = open(".", O_TMPFILE | O_RDWR, 0600);
        CHECK(t < 0 || write(t, "temporary", 9) == 9);
        victim_ready();
        victim_wait();
        CHECK(read(a, buf, 3) == 3 && memcmp(buf, "234", 3) == 0 && read(b, buf, 64) == 5 &&
              memcmp(buf, "56789", 5) == 0);
        CHECK(fstat(a, &st) == 0 && fstat(b, &st2) == 0 && st.st_ino == st2.st_ino && st.st_size == 10);
        CHECK(pwrite(a, "XY", 2, 8) == 2 && pread(b, buf, 2, 8) == 2 && memcmp(buf, "XY", 2) == 0);
        CHECK(fstat(s, &st) == 0 && st.st_size == 100 << 20 && (st.st_mode & 0777) == 0644 &&
              pread(s, buf, 3, 50 << 20) == 3 && memcmp(buf, "mid", 3) == 0);
        CHECK(pread(l, buf, 6, 0) == 6 && memcmp(buf, "linked", 6) == 0);
        CHECK(t < 0 || (pread(t, buf, 9, 0) == 9 && memcmp(buf, "temporary", 9) == 0 && lseek(t, 0, SEEK_CUR) == 9));
        victim_pass();
}
