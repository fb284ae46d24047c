/* Open and mapped files whose opened name is gone but that have another one, in the same folder or elsewhere: what is written
 * comes to the other name.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../victim.h"

static int file_with_two(const char *name, const char *other)
{
        int fd = open(name, O_RDWR | O_CREAT, 0600);

        CHECK(write(fd, "linked", 6) == 6 && link(name, other) == 0 && unlink(name) == 0);
        return fd;
}

static void expect_file(const char *name, const char *text)
{
        char buf[16] = {0};
        int k = open(name, O_RDONLY);

        CHECK(k >= 0 && read(k, buf, sizeof(buf)) == (ssize_t)strlen(text) && strcmp(buf, text) == 0);
        close(k);
}

int main(void)
{
        CHECK(mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0 && mkdir("b/deep", 0700) == 0);
        int l = file_with_two("l", "kept"), far = file_with_two("a/far", "b/deep/kept"),
            m = file_with_two("m", "mapped");
        CHECK(rmdir("a") == 0);
        int again = open("kept", O_RDONLY), unnamed = open("unnamed", O_RDWR | O_CREAT, 0600);
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
        CHECK(map != MAP_FAILED && close(m) == 0 && unlink("unnamed") == 0);
        victim_ready();
        victim_wait();
        char buf[16] = {0};
        CHECK(write(l, "-more", 5) == 5 && write(far, "-far", 4) == 4);
        expect_file("kept", "linked-more");
        expect_file("b/deep/kept", "linked-far");
        CHECK(read(again, buf, sizeof(buf)) == 11 && memcmp(buf, "linked-more", 11) == 0);
        map[0] = 'L';
        expect_file("mapped", "Linked");
        struct stat st;
        CHECK(fstat(unnamed, &st) == 0 && st.st_nlink == 0 && fstat(l, &st) == 0 && st.st_nlink == 1);
        victim_pass();
}
