/* A reservation of 64 GiB without swap accounting of which a few pages are used, as sanitizers and Go make them. */
#include "../mem.h"

#define SIZE (64UL << 30)

int main(void)
{
        char *m = mmap(NULL, SIZE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        CHECK(m != MAP_FAILED);
        for (size_t p = 0; p < SIZE; p += 3UL << 30)
                fill(m + p, PAGE, p);
        victim_ready();
        victim_wait();
        for (size_t p = 0; p < SIZE; p += 3UL << 30) {
                CHECK_FILLED(m + p, PAGE, p);
                CHECK_ZERO(m + p + PAGE, PAGE);
        }
        CHECK(munmap(m, SIZE) == 0);
        victim_pass();
}
