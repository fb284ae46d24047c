/* Private file mappings: clean pages, dirtied pages, beyond the first page offset, read-only, after the file changed. */
#include "../mem.h"

int main(void)
{
        int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
        static char block[16 * PAGE];

        fill(block, sizeof(block), 1);
        CHECK(fd >= 0 && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
        char *m = mmap(NULL, 16 * PAGE, RW, MAP_PRIVATE, fd, 0),
             *off = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, fd, 8 * PAGE);
        char *late = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, 4 * PAGE);
        CHECK(m != MAP_FAILED && off != MAP_FAILED && late != MAP_FAILED);
        close(fd);
        for (size_t p = 0; p < 16; p += 2)
                fill(m + p * PAGE, PAGE, 100 + p);
        victim_ready();
        victim_wait();
        for (size_t p = 0; p < 16; p++)
                if (p % 2 == 0)
                        CHECK_FILLED(m + p * PAGE, PAGE, 100 + p);
                else
                        CHECK(memcmp(m + p * PAGE, block + p * PAGE, PAGE) == 0);
        CHECK(memcmp(off, block + 8 * PAGE, 4 * PAGE) == 0 && memcmp(late, block + 4 * PAGE, 2 * PAGE) == 0);
        fill(late, 2 * PAGE, 9);
        CHECK(memcmp(m + 5 * PAGE, block + 5 * PAGE, PAGE) == 0);                   /* private it is */
        CHECK(madvise(m, PAGE, MADV_DONTNEED) == 0 && memcmp(m, block, PAGE) == 0); /* back to the file */
        victim_pass();
}
