/* Two threads that write all the time: a counter that sweeps over pages, each checked before it is written, so that a page
 * saved from another moment than the registers shows at once. */
#include <pthread.h>
#include <sys/mman.h>

#include "victim.h"

#define PAGES 8192
static unsigned long *pages;
static int stop;
static const char *failure;

static void *sweep(void *arg)
{
        size_t half = (size_t)arg;
        unsigned long *p = pages + half * (PAGES / 2) * 512;

        for (unsigned long gen = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED) && !failure; gen++)
                for (size_t i = 0; i < PAGES / 2; i++) {
                        if (p[i * 512] != gen - 1 || p[i * 512 + 511] != gen - 1)
                                failure = "a page is from another time";
                        p[i * 512] = p[i * 512 + 511] = gen;
                        if (i % 64 == 0)
                                usleep(100);
                }
        return NULL;
}

int main(void)
{
        pthread_t t[2];

        pages = mmap(NULL, PAGES * 4096UL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        for (size_t i = 0; i < 2; i++)
                CHECK(pthread_create(&t[i], NULL, sweep, (void *)i) == 0);
        usleep(50000);
        victim_ready();
        victim_wait();
        usleep(200000);
        stop = 1;
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
        if (failure)
                victim_fail("%s", failure);
        victim_pass();
}
