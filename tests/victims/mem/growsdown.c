/* MAP_GROWSDOWN memory: its contents, and that it grows on after the thaw. */
#include "../mem.h"

int main(void)
{
        char *hole = ANON(512 * PAGE, PROT_NONE);

        CHECK(hole != MAP_FAILED && munmap(hole, 512 * PAGE) == 0);
        char *m =
                mmap(hole + 400 * PAGE, 16 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
        CHECK(m != MAP_FAILED);
        fill(m, 16 * PAGE, 4);
        for (int i = 1; i < 4; i++)
                m[-i * (long)PAGE] = (char)i;
        victim_ready();
        victim_wait();
        CHECK_FILLED(m, 16 * PAGE, 4);
        for (int i = 1; i < 40; i++) {
                CHECK(m[-i * (long)PAGE] == (i < 4 ? i : 0));
                m[-i * (long)PAGE + 9] = (char)i;
        }
        victim_pass();
}
