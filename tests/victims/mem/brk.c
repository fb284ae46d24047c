/* The heap: its contents, sbrk growth and shrinkage after the thaw, zeros in what is new. */
#include "../mem.h"

int main(void)
{
        char *from = sbrk(0);

        from = (char *)(((uintptr_t)from + PAGE - 1) & ~(PAGE - 1));
        CHECK(brk(from + 100 * PAGE) == 0);
        fill(from, 60 * PAGE, 1);
        victim_ready();
        victim_wait();
        CHECK(sbrk(0) == from + 100 * PAGE);
        CHECK_FILLED(from, 60 * PAGE, 1);
        CHECK_ZERO(from + 60 * PAGE, 40 * PAGE);
        CHECK(brk(from + 300 * PAGE) == 0);
        CHECK_ZERO(from + 100 * PAGE, 200 * PAGE);
        fill(from + 100 * PAGE, 200 * PAGE, 2);
        CHECK(brk(from + 20 * PAGE) == 0 && brk(from + 80 * PAGE) == 0);
        CHECK_FILLED(from, 20 * PAGE, 1);
        CHECK_ZERO(from + 20 * PAGE, 60 * PAGE);
        victim_pass();
}
