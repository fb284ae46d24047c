/* Guard regions (MADV_GUARD_INSTALL) fault still after the thaw and can be removed; the pages beside them are whole. */
#include <setjmp.h>

#include "../mem.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

static sigjmp_buf out;
static void on(int sig)
{
        siglongjmp(out, 1);
}

int main(void)
{
        char *m = ANON(32 * PAGE, RW);
        struct sigaction sa = {.sa_handler = on, .sa_flags = SA_NODEFER};

        fill(m, 32 * PAGE, 1);
        if (madvise(m + 8 * PAGE, 4 * PAGE, MADV_GUARD_INSTALL) != 0)
                victim_skip("no guard regions in this kernel");
        victim_ready();
        victim_wait();
        sigaction(SIGSEGV, &sa, NULL);
        for (volatile int i = 8; i < 12; i++)
                if (sigsetjmp(out, 1) == 0) {
                        m[i * (long)PAGE] = 1;
                        victim_fail("guard page %d was written", i);
                }
        CHECK_FILLED(m, 8 * PAGE, 1);
        CHECK(madvise(m + 8 * PAGE, 4 * PAGE, MADV_GUARD_REMOVE) == 0);
        CHECK_ZERO(m + 8 * PAGE, 4 * PAGE);
        victim_pass();
}
