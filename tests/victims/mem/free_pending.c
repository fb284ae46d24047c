/* Pages that were given to MADV_FREE before the freeze: the old bytes or zeros, page by page, and whole once written. */
#include "../mem.h"

#define SIZE (128 * PAGE)

int main(void)
{
        char *a = ANON(SIZE, RW);

        fill(a, SIZE, 1);
        CHECK(madvise(a, SIZE, MADV_FREE) == 0);
        a[5 * PAGE] = 1; /* written: this one stays */
        victim_ready();
        victim_wait();
        CHECK(a[5 * PAGE] == 1);
        for (size_t p = 0; p < SIZE; p += PAGE)
                if (p != 5 * PAGE)
                        CHECK(*(uint64_t *)(a + p) == 2 * 0x9e3779b97f4a7c15UL + p / 8 * 0xff51afd7ed558ccdUL ||
                              not_zero(a + p, PAGE) < 0);
        fill(a, SIZE, 2);
        CHECK_FILLED(a, SIZE, 2);
        victim_pass();
}
