/* MAP_DROPPABLE memory is droppable still: each page is what it was or zero; getrandom through the vdso works. */
#include <pthread.h>
#include <sys/random.h>

#include "../mem.h"

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

int main(void)
{
        char *m = mmap(NULL, 32 * PAGE, RW, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0), perms[8], flags[256];
        unsigned char a[64], b[64];

        if (m == MAP_FAILED)
                victim_skip("no MAP_DROPPABLE in this kernel");
        fill(m, 32 * PAGE, 2);
        CHECK(getrandom(a, sizeof(a), 0) == sizeof(a));
        victim_ready();
        victim_wait();
        mapping_of(m, perms, flags, sizeof(flags));
        CHECK(strstr(flags, " dp "));
        for (size_t p = 0; p < 32; p++) {
                uint64_t first = 3 * 0x9e3779b97f4a7c15UL + p * PAGE / 8 * 0xff51afd7ed558ccdUL;
                CHECK(*(uint64_t *)(m + p * PAGE) == first || not_zero(m + p * PAGE, PAGE) < 0);
        }
        fill(m, 32 * PAGE, 3);
        CHECK(getrandom(b, sizeof(b), 0) == sizeof(b) && memcmp(a, b, sizeof(a)) != 0);
        victim_pass();
}
