/* Private anonymous memory of all sizes, sparse and dense, written on and read on; untouched pages stay zero. */
#include "../mem.h"

#define N 60

int main(void)
{
        char *area[N];
        size_t size[N];

        for (size_t i = 0; i < N; i++) {
                size[i] = PAGE * (1 + i * i % 97);
                area[i] = ANON(size[i], RW);
                CHECK(area[i] != MAP_FAILED);
                if (i % 3 == 0)
                        fill(area[i], size[i], i);
                else if (i % 3 == 1)
                        for (size_t p = 0; p < size[i]; p += 3 * PAGE)
                                fill(area[i] + p, PAGE, i + p);
        }
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < N; i++) {
                if (i % 3 == 0)
                        CHECK_FILLED(area[i], size[i], i);
                else
                        for (size_t p = 0; p < size[i]; p += PAGE) {
                                if (i % 3 == 1 && p % (3 * PAGE) == 0)
                                        CHECK_FILLED(area[i] + p, PAGE, i + p);
                                else
                                        CHECK_ZERO(area[i] + p, PAGE);
                        }
        }
        for (size_t i = 0; i < N; i++) {
                fill(area[i], size[i], i + 1000);
                CHECK_FILLED(area[i], size[i], i + 1000);
                CHECK(munmap(area[i], size[i]) == 0);
        }
        victim_pass();
}
