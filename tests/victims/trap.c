/* Memory that reads as zeros after DONTNEED and mremap, in large areas that a thaw maps from the image: every byte. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "victim.h"

#define MB (1UL << 20)
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static unsigned char *area(size_t n, int seed)
{
        unsigned char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(p != MAP_FAILED);
        for (size_t i = 0; i < n; i++)
                p[i] = (unsigned char)(i * 13 + i / 4096 + (size_t)seed);
        return p;
}

static void check(const unsigned char *p, size_t from, size_t to, int seed)
{
        for (size_t i = from; i < to; i++)
                if (p[i] != (unsigned char)(i * 13 + i / 4096 + (size_t)seed))
                        victim_fail("byte %zu of area %d is %d", i, seed, p[i]);
}

static void zero(const unsigned char *p, size_t from, size_t to, int seed)
{
        for (size_t i = from; i < to; i++)
                if (p[i])
                        victim_fail("byte %zu of area %d is %d, not 0", i, seed, p[i]);
}

static volatile int busy = 1;
static void *reader(void *arg)
{
        unsigned char *p = arg;
        size_t bad = 0;

        while (busy)
                for (size_t i = 0; i < 4 * MB; i += 4096)
                        bad += p[i] != (unsigned char)(i * 13 + i / 4096 + 5);
        return (void *)bad;
}

int main(void)
{
        unsigned char *a = area(4 * MB, 1), *b = area(4 * MB, 2), *c = area(4 * MB, 3), *d = area(4 * MB, 4),
                      *e = area(4 * MB, 5);
        unsigned char *f = area(8 * MB, 6), *g = area(4 * MB, 7), *h = area(4 * MB, 8);
        pthread_t t;

        CHECK(madvise(f + MB, MB, MADV_DONTNEED) == 0); /* a hole: several mappings after a thaw, one area before */
        CHECK(pthread_create(&t, NULL, reader, e) == 0);
        victim_ready();
        victim_wait();
        CHECK(madvise(a + 64 * 4096, 700 * 4096, MADV_DONTNEED) == 0);
        check(a, 0, 64 * 4096UL, 1);
        zero(a, 64 * 4096UL, 764 * 4096UL, 1);
        check(a, 764 * 4096UL, 4 * MB, 1);
        a[100 * 4096] = 7;
        CHECK(madvise(a + 64 * 4096, 700 * 4096, MADV_DONTNEED) == 0);
        zero(a, 64 * 4096UL, 764 * 4096UL, 1);
        b = mremap(b, 4 * MB, 6 * MB, MREMAP_MAYMOVE);
        CHECK(b != MAP_FAILED);
        check(b, 0, 4 * MB, 2);
        zero(b, 4 * MB, 6 * MB, 2);
        c = mremap(c, 4 * MB, MB, 0);
        CHECK(c != MAP_FAILED);
        check(c, 0, MB, 3);
        c = mremap(c, MB, 3 * MB, MREMAP_MAYMOVE);
        CHECK(c != MAP_FAILED);
        check(c, 0, MB, 3);
        zero(c, MB, 3 * MB, 3);
        CHECK(madvise(d, 4 * MB, MADV_FREE) == 0);
        d[5] = 9;
        CHECK(d[5] == 9);
        f = mremap(f, 8 * MB, 9 * MB, MREMAP_MAYMOVE);
        CHECK(f != MAP_FAILED);
        check(f, 0, MB, 6);
        zero(f, MB, 2 * MB, 6);
        check(f, 2 * MB, 8 * MB, 6);
        zero(f, 8 * MB, 9 * MB, 6);
        CHECK(madvise(f, 9 * MB, MADV_DONTNEED) == 0);
        zero(f, 0, 9 * MB, 6);
        CHECK(madvise(g, 4 * MB, MADV_WIPEONFORK) == 0);
        check(g, 0, 4 * MB, 7);
        pid_t child = fork();
        if (child == 0) {
                zero(g, 0, 4 * MB, 7);
                check(h, 0, 4 * MB, 8);
                CHECK(madvise(h, 2 * MB, MADV_DONTNEED) == 0);
                zero(h, 0, 2 * MB, 8);
                check(h, 2 * MB, 4 * MB, 8);
                _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        check(h, 0, 4 * MB, 8);
        busy = 0;
        void *bad;
        CHECK(pthread_join(t, &bad) == 0 && bad == NULL);
        victim_pass();
}
