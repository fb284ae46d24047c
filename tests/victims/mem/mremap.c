/* mremap after the thaw of memory of before it: growth in place and moved shows zeros, shrink and regrow too, DONTUNMAP. */
#include "../mem.h"

#define SIZE (64 * PAGE)
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

int main(void)
{
        char *area[6];

        for (size_t i = 0; i < 6; i++) {
                area[i] = ANON(SIZE, RW);
                CHECK(area[i] != MAP_FAILED);
                fill(area[i], SIZE, i);
        }
        char *room = ANON(SIZE * 4, RW); /* with free space behind it */
        fill(room, SIZE * 4, 77);
        CHECK(munmap(room + SIZE, SIZE * 3) == 0);
        victim_ready();
        victim_wait();
        CHECK(mremap(room, SIZE, SIZE * 3, 0) == room); /* in place */
        CHECK_FILLED(room, SIZE, 77);
        CHECK_ZERO(room + SIZE, SIZE * 2);
        char *m = mremap(area[0], SIZE, SIZE * 4, MREMAP_MAYMOVE);
        CHECK(m != MAP_FAILED);
        CHECK_FILLED(m, SIZE, 0);
        CHECK_ZERO(m + SIZE, SIZE * 3);
        CHECK(mremap(area[1], SIZE, SIZE / 2, 0) == area[1]); /* shrink, then grow */
        m = mremap(area[1], SIZE / 2, SIZE, MREMAP_MAYMOVE);
        CHECK(m != MAP_FAILED);
        CHECK_FILLED(m, SIZE / 2, 1);
        CHECK_ZERO(m + SIZE / 2, SIZE / 2);
        char *to = ANON(SIZE * 2, PROT_NONE);
        m = mremap(area[2], SIZE, SIZE * 2, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        CHECK(m == to);
        CHECK_FILLED(m, SIZE, 2);
        CHECK_ZERO(m + SIZE, SIZE);
        m = mremap(area[3] + 8 * PAGE, 8 * PAGE, 32 * PAGE, MREMAP_MAYMOVE); /* out of the middle */
        CHECK(m != MAP_FAILED && *(uint64_t *)m == 4 * 0x9e3779b97f4a7c15UL + 8 * PAGE / 8 * 0xff51afd7ed558ccdUL);
        CHECK_ZERO(m + 8 * PAGE, 24 * PAGE);
        CHECK_FILLED(area[3], 8 * PAGE, 3);
        m = mremap(area[4], SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        CHECK(m != MAP_FAILED);
        CHECK_FILLED(m, SIZE, 4);
        CHECK_ZERO(area[4], SIZE); /* the place of before is empty memory */
        CHECK(munmap(area[5] + PAGE, PAGE) == 0 && munmap(area[5] + 5 * PAGE, 20 * PAGE) == 0);
        CHECK_FILLED(area[5], PAGE, 5);
        char *again = mmap(area[5] + PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(again == area[5] + PAGE);
        CHECK_ZERO(again, PAGE);
        victim_pass();
}
