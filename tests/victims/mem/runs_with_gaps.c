/* Large areas in which single pages are written, given back and replaced all the time, here and there, while one checkpoint
 * follows another: most pages are those of an old image, some of each newer one, and some are zeros again that must not show
 * what a page file has at their place.  Every page says in its first and last word what was written to it last. */
#include <pthread.h>

#include "../mem.h"

#define AREAS 4
#define PAGES 512
#define WORDS (PAGE / 8)

static uint64_t *area[AREAS], want[AREAS][PAGES];
static int stop;

static uint64_t *page(int i, int k)
{
        return area[i] + k * WORDS;
}

static void change(int i, int k, uint64_t value)
{
        uint64_t *p = page(i, k);

        if (value % 16 == 0)
                CHECK(madvise(p, PAGE, MADV_DONTNEED) == 0);
        else if (value % 16 == 1)
                CHECK(mmap(p, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
        else {
                p[0] = p[WORDS - 1] = want[i][k] = value;
                return;
        }
        want[i][k] = 0;
}

static void *churn(void *arg)
{
        uint64_t x = 88172645463325252;

        for (uint64_t n = 2; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                change((int)(x % AREAS), (int)(x / AREAS % PAGES), n);
                if (n % 8 == 0)
                        usleep(300);
        }
        return NULL;
}

int main(void)
{
        pthread_t t;

        for (int i = 0; i < AREAS; i++) {
                area[i] = ANON(PAGES * PAGE, RW);
                CHECK(area[i] != MAP_FAILED);
                for (int k = 0; k < PAGES; k++)
                        change(i, k, (uint64_t)(i * PAGES + k) * 16 + 15);
        }
        CHECK(pthread_create(&t, NULL, churn, NULL) == 0);
        victim_ready();
        victim_wait();
        stop = 1;
        CHECK(pthread_join(t, NULL) == 0);
        for (int i = 0; i < AREAS; i++)
                for (int k = 0; k < PAGES; k++)
                        if (page(i, k)[0] != want[i][k] || page(i, k)[WORDS - 1] != want[i][k])
                                victim_fail("page %d of area %d is %llu, not %llu", k, i,
                                            (unsigned long long)page(i, k)[0], (unsigned long long)want[i][k]);
        victim_pass();
}
