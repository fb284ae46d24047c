/* Two thaws of one image draw different random numbers from the kernel (and from WIPEONFORK state, as wiped as by fork). */
#include <sys/random.h>

#include "../mem.h"

int main(void)
{
        char *state = ANON(PAGE, RW);

        CHECK(madvise(state, PAGE, MADV_WIPEONFORK) == 0);
        fill(state, PAGE, 1);
        victim_ready();
        victim_wait();
        /* Never frozen it is whole; thawed it is zero; nothing between. */
        CHECK(differs(state, PAGE, 1) < 0 || not_zero(state, PAGE) < 0);
        unsigned char a[32], b[32];
        CHECK(getrandom(a, 32, 0) == 32 && getrandom(b, 32, 0) == 32 && memcmp(a, b, 32) != 0);
        victim_pass();
}
