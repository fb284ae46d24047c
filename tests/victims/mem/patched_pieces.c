/* Large areas that after a thaw are cut to short pieces, one page of each written: in the next image old pieces with new pages
 * over them, and the new ones must win.  A thaw is told by the wall clock, which went on meanwhile, unlike the monotonic. */
#include <time.h>

#include "../mem.h"

#define AREAS 32
#define PAGES 64

static char *area[AREAS];

static long skew(void)
{
        struct timespec r, m;

        clock_gettime(CLOCK_REALTIME, &r);
        clock_gettime(CLOCK_MONOTONIC, &m);
        return (r.tv_sec - m.tv_sec) * 1000000 + (r.tv_nsec - m.tv_nsec) / 1000;
}

static volatile uint64_t *page(int i, int k)
{
        return (uint64_t *)(area[i] + k * (long)PAGE);
}

int main(void)
{
        for (int i = 0; i < AREAS; i++) {
                area[i] = mmap(NULL, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                CHECK(area[i] != MAP_FAILED);
                for (int k = 0; k < PAGES; k++)
                        *page(i, k) = (uint64_t)(i * 1000 + k + 1);
        }
        long before = skew();
        victim_ready();
        while (!victim_gone() && skew() - before < 3000)
                usleep(500);
        for (int i = 0; i < AREAS; i++)
                for (int k = 0; k < PAGES; k += 8) {
                        CHECK(munmap(area[i] + k * (long)PAGE, PAGE) == 0);
                        *page(i, k + 6) = (uint64_t)(i * 1000 + k + 500000);
                }
        victim_wait();
        for (int i = 0; i < AREAS; i++)
                for (int k = 0; k < PAGES; k += 8) {
                        CHECK(*page(i, k + 5) == (uint64_t)(i * 1000 + k + 6) &&
                              *page(i, k + 7) == (uint64_t)(i * 1000 + k + 8));
                        if (*page(i, k + 6) != (uint64_t)(i * 1000 + k + 500000))
                                victim_fail("page %d of area %d is an old one", k + 6, i);
                }
        victim_pass();
}
