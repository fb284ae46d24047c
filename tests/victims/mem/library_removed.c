/* A library (a file that the process has code of) with written data, whose name goes after a thaw, and is given to another file, as when it is
 * upgraded: memory stays, and dropped pages never have the new file's bytes: they have the old one's, or cannot be dropped.
 * victim: flavours=unfrozen,kill,twice,tracked,checkpoints,chain,exact */
#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "../mem.h"

#define PAGES 24UL
#define CODE 4UL

static char *data;

static long skew(void)
{
        struct timespec r, m;

        clock_gettime(CLOCK_REALTIME, &r);
        clock_gettime(CLOCK_MONOTONIC, &m);
        return (r.tv_sec - m.tv_sec) * 1000000 + (r.tv_nsec - m.tv_nsec) / 1000;
}

static int make(uint64_t seed)
{
        static char block[PAGE];
        int fd = open("lib", O_RDWR | O_CREAT | O_EXCL, 0700);

        for (size_t i = 0; i < PAGES; i++) {
                fill(block, PAGE, seed + i);
                CHECK(fd >= 0 && write(fd, block, PAGE) == PAGE);
        }
        return fd;
}

static void verify(bool dropped)
{
        for (size_t i = CODE; i < PAGES; i++) {
                char *page = data + (i - CODE) * PAGE;
                CHECK_FILLED(page, PAGE, i < 16 && !dropped ? 500 + i : 100 + i);
        }
}

int main(void)
{
        int fd = make(100);
        char *code = mmap(NULL, CODE * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

        CHECK(code != MAP_FAILED);
        data = mmap(NULL, (PAGES - CODE) * PAGE, RW, MAP_PRIVATE, fd, CODE * PAGE);
        CHECK(data != MAP_FAILED && close(fd) == 0);
        for (size_t i = CODE; i < 16; i++)
                fill(data + (i - CODE) * PAGE, PAGE, 500 + i);
        long before = skew();
        victim_ready();
        while (!victim_gone() && skew() - before < 3000)
                usleep(500);
        CHECK(unlink("lib") == 0);
        close(make(900));
        victim_wait();
        verify(false);
        if (madvise(data, 20 * PAGE, MADV_DONTNEED) == 0)
                verify(true);
        else {
                CHECK(errno == ENOMEM);
                verify(false);
        }
        CHECK_FILLED(code, PAGE, 100);
        victim_pass();
}
