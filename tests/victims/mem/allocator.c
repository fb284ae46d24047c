/* An allocator under stress in 4 threads over the freeze, in malloc and in mmap with DONTNEED, FREE, mremap: every byte
 * is checked, and what must be zero is. */
#include <pthread.h>

#include "../mem.h"

#define SLOTS 200
static volatile int stop;
static char why[200];

static void complain(const char *what, long at)
{
        if (!why[0])
                snprintf(why, sizeof(why), "%s at byte %ld", what, at);
}

static void *with_malloc(void *arg)
{
        unsigned r = (unsigned)(long)arg + 1;
        uint64_t *slot[SLOTS] = {0};
        size_t size[SLOTS] = {0};

        while (!stop && !why[0]) {
                int i = rand_r(&r) % SLOTS;
                if (slot[i] && differs(slot[i], size[i], (uint64_t)i) >= 0)
                        complain("malloc", differs(slot[i], size[i], (uint64_t)i));
                size_t n = (size_t)(rand_r(&r) % (i % 10 ? 4000 : 300000)) & ~7UL;
                if (rand_r(&r) % 3 == 0) {
                        size_t old = size[i] < n ? size[i] : n;
                        slot[i] = realloc(slot[i], n + 8);
                        if (differs(slot[i], old, (uint64_t)i) >= 0)
                                complain("realloc", differs(slot[i], old, (uint64_t)i));
                } else {
                        free(slot[i]);
                        slot[i] = calloc(n + 8, 1);
                        if (not_zero(slot[i], n + 8) >= 0)
                                complain("calloc", not_zero(slot[i], n + 8));
                }
                size[i] = n;
                fill(slot[i], n, (uint64_t)i);
        }
        return NULL;
}

static void *with_mmap(void *arg)
{
        unsigned r = (unsigned)(long)arg + 1;
        char *slot[40] = {0};
        size_t size[40];

        while (!stop && !why[0]) {
                int i = rand_r(&r) % 40;
                if (!slot[i]) {
                        size[i] = PAGE * (size_t)(1 + rand_r(&r) % 64);
                        slot[i] = ANON(size[i], RW);
                        if (not_zero(slot[i], size[i]) >= 0)
                                complain("fresh memory", not_zero(slot[i], size[i]));
                        fill(slot[i], size[i], (uint64_t)i);
                }
                if (differs(slot[i], size[i], (uint64_t)i) >= 0)
                        complain("memory", differs(slot[i], size[i], (uint64_t)i));
                size_t n = PAGE * (size_t)(1 + rand_r(&r) % 64);
                char *m;
                switch (rand_r(&r) % 4) {
                case 0:
                        munmap(slot[i], size[i]);
                        slot[i] = NULL;
                        continue;
                case 1:
                        if (madvise(slot[i], size[i], MADV_DONTNEED) != 0 || not_zero(slot[i], size[i]) >= 0)
                                complain("DONTNEED", not_zero(slot[i], size[i]));
                        break;
                case 2:
                        if (madvise(slot[i], size[i], MADV_FREE) != 0)
                                complain("FREE", errno);
                        break;
                case 3:
                        m = mremap(slot[i], size[i], n, MREMAP_MAYMOVE);
                        if (m == MAP_FAILED) {
                                complain("mremap", errno);
                                continue;
                        }
                        if (differs(m, n < size[i] ? n : size[i], (uint64_t)i) >= 0)
                                complain("moved memory", differs(m, n < size[i] ? n : size[i], (uint64_t)i));
                        if (n > size[i] && not_zero(m + size[i], n - size[i]) >= 0)
                                complain("grown memory", not_zero(m + size[i], n - size[i]));
                        slot[i] = m;
                        size[i] = n;
                }
                fill(slot[i], size[i], (uint64_t)i);
        }
        return NULL;
}

int main(void)
{
        pthread_t t[4];

        for (long i = 0; i < 4; i++)
                CHECK(pthread_create(&t[i], NULL, i % 2 ? with_mmap : with_malloc, (void *)i) == 0);
        usleep(100000);
        victim_ready();
        victim_wait();
        usleep(150000);
        stop = 1;
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
        if (why[0])
                victim_fail("%s", why);
        victim_pass();
}
