/* madvise after the thaw on memory of before it: DONTNEED and DONTNEED_LOCKED give zeros, FREE the old bytes or zeros. */
#include "../mem.h"

#define SIZE (256 * PAGE)
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

int main(void)
{
        char *a = ANON(SIZE, RW), *b = ANON(SIZE, RW), *c = ANON(SIZE, RW), *d = ANON(SIZE, RW);

        fill(a, SIZE, 1);
        fill(b, SIZE, 2);
        fill(c, SIZE, 3);
        fill(d, SIZE, 4);
        victim_ready();
        victim_wait();
        CHECK(madvise(a + 10 * PAGE, 100 * PAGE, MADV_DONTNEED) == 0);
        CHECK_FILLED(a, 10 * PAGE, 1);
        CHECK_ZERO(a + 10 * PAGE, 100 * PAGE);
        CHECK(*(uint64_t *)(a + 110 * PAGE) == 2 * 0x9e3779b97f4a7c15UL + 110 * PAGE / 8 * 0xff51afd7ed558ccdUL);
        fill(a + 10 * PAGE, 100 * PAGE, 11);
        CHECK_FILLED(a + 10 * PAGE, 100 * PAGE, 11);
        CHECK(madvise(a, SIZE, MADV_DONTNEED) == 0);
        CHECK_ZERO(a, SIZE);
        CHECK(madvise(b, SIZE, MADV_FREE) == 0);
        for (size_t p = 0; p < SIZE; p += PAGE)
                CHECK(*(uint64_t *)(b + p) == 3 * 0x9e3779b97f4a7c15UL + p / 8 * 0xff51afd7ed558ccdUL ||
                      not_zero(b + p, PAGE) < 0);
        fill(b, SIZE, 22);
        CHECK_FILLED(b, SIZE, 22);
        CHECK(madvise(c, SIZE, MADV_DONTNEED_LOCKED) == 0);
        CHECK_ZERO(c, SIZE);
        CHECK(madvise(d, SIZE, MADV_WIPEONFORK) == 0);
        int st;
        pid_t pid = fork();
        if (pid == 0)
                _exit(not_zero(d, SIZE) < 0 ? 0 : 1);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        CHECK_FILLED(d, SIZE, 4);
        victim_pass();
}
