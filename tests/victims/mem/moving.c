/* Areas that come, move, grow and go all the time: a freeze of the running tree never makes two of one, over which mremap fails. */
#include <pthread.h>
#include <stdlib.h>

#include "../mem.h"

#define THREADS 3
#define AREAS 40

static volatile int stop, failed;

static void *work(void *arg)
{
        unsigned seed = (unsigned)(uintptr_t)arg;
        char *area[AREAS] = {0};
        size_t size[AREAS] = {0};

        while (!stop) {
                unsigned i = (unsigned)rand_r(&seed) % AREAS;
                size_t n = PAGE * (1 + (size_t)rand_r(&seed) % 40);
                if (!area[i]) {
                        area[i] = ANON(n, RW);
                } else if (n % 3 == 0) {
                        munmap(area[i], size[i]);
                        area[i] = NULL;
                        continue;
                } else {
                        area[i] = mremap(area[i], size[i], n, MREMAP_MAYMOVE);
                }
                if (area[i] == MAP_FAILED) {
                        failed = errno;
                        break;
                }
                size[i] = n;
                area[i][n - 1] = 1;
        }
        return NULL;
}

int main(void)
{
        pthread_t t[THREADS];

        for (uintptr_t i = 0; i < THREADS; i++)
                CHECK(pthread_create(&t[i], NULL, work, (void *)(i + 1)) == 0);
        victim_ready();
        victim_wait();
        usleep(100000);
        stop = 1;
        for (int i = 0; i < THREADS; i++)
                pthread_join(t[i], NULL);
        if (failed)
                victim_fail("a change of an area: %s", strerror(failed));
        victim_pass();
}
