/* The x87 stack, its control word, MXCSR (rounding, flush to zero, masked exceptions), in a loop and in a system call.
 * victim: libs=-lm */
#include <fenv.h>
#include <pthread.h>
#include <xmmintrin.h>

#include "../victim.h"

static volatile int go, spinning;
static int bad;

static void *spin(void *arg)
{
        long double a = 3.14159265358979323846L, b = 2.718281828459045235L, c = 1.5L, ra, rb, rc;
        unsigned short cw = 0x067f, got; /* round up, double precision, all masked */

        __asm__ volatile("fldcw %[cw]\n fldt %[a]\n fldt %[b]\n fldt %[c]\n"
                         "lock incl %[s]\n"
                         "1: pause\n cmpl $0, %[go]\n je 1b\n"
                         "fstpt %[rc]\n fstpt %[rb]\n fstpt %[ra]\n fnstcw %[got]\n"
                         : [ra] "=m"(ra), [rb] "=m"(rb), [rc] "=m"(rc), [got] "=m"(got), [s] "+m"(spinning)
                         : [cw] "m"(cw), [a] "m"(a), [b] "m"(b), [c] "m"(c), [go] "m"(go)
                         : "memory");
        if (ra != a || rb != b || rc != c)
                bad = 1;
        if (got != cw)
                bad = 2;
        return arg;
}

int main(void)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, spin, NULL) == 0);
        fesetround(FE_DOWNWARD);
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
        unsigned csr = _mm_getcsr();
        feenableexcept(FE_DIVBYZERO);
        while (!spinning)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK((_mm_getcsr() & 0xe040) == (csr & 0xe040) && fegetround() == FE_DOWNWARD &&
              fegetexcept() == FE_DIVBYZERO);
        go = 1;
        pthread_join(t, NULL);
        if (bad)
                victim_fail("check %d", bad);
        victim_pass();
}
