/* malloc, realloc, calloc, aligned blocks of all sizes in 4 threads, every byte checked; run as is and, by its two sister
 * victims, with jemalloc and mimalloc in its place. */
#include <malloc.h>
#include <pthread.h>

#include "../mem.h"

#define SLOTS 400
static volatile int stop;
static char why[200];

static void complain(const char *what, long at)
{
        if (!why[0])
                snprintf(why, sizeof(why), "%s at byte %ld", what, at);
}

static void *run(void *arg)
{
        unsigned r = (unsigned)(long)arg * 77 + 1;
        uint64_t *slot[SLOTS] = {0}, seed[SLOTS] = {0};
        size_t size[SLOTS] = {0};

        while (!stop && !why[0]) {
                int i = rand_r(&r) % SLOTS;
                long at = slot[i] ? differs(slot[i], size[i], seed[i]) : -1;
                if (at >= 0)
                        complain("a block changed", at);
                size_t n = (size_t)(rand_r(&r) % (i % 50 == 0 ? 3000000 : i % 8 ? 2000 : 60000)) & ~7UL;
                switch (rand_r(&r) % 4) {
                case 0: {
                        size_t old = size[i] < n ? size[i] : n;
                        slot[i] = realloc(slot[i], n + 8);
                        if ((at = differs(slot[i], old, seed[i])) >= 0)
                                complain("realloc", at);
                        break;
                }
                case 1:
                        free(slot[i]);
                        slot[i] = aligned_alloc(64, (n + 72) & ~63UL);
                        break;
                case 2:
                        free(slot[i]);
                        slot[i] = calloc(1, n + 8);
                        if ((at = not_zero(slot[i], n + 8)) >= 0)
                                complain("calloc", at);
                        break;
                case 3:
                        free(slot[i]);
                        slot[i] = NULL;
                        size[i] = 0;
                        continue;
                }
                seed[i] = (uint64_t)rand_r(&r);
                size[i] = n;
                fill(slot[i], n, seed[i]);
        }
        for (int i = 0; i < SLOTS; i++)
                free(slot[i]);
        return NULL;
}

int main(int argc, char **argv)
{
        pthread_t t[4];
        const char *want = getenv("VICTIM_MALLOC");

        if (want && !getenv("LD_PRELOAD")) {
                if (access(want, R_OK) != 0)
                        victim_skip("no such allocator here");
                setenv("LD_PRELOAD", want, 1);
                execv("/proc/self/exe", argv);
        }
        for (long i = 0; i < 4; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        usleep(200000);
        victim_ready();
        victim_wait();
        usleep(200000);
        int st;
        pid_t pid = fork(); /* the allocator works in a child as well */
        if (pid == 0) {
                stop = 0;
                for (int k = 0; k < 2000; k++) {
                        char *p = calloc(1, (size_t)k * 37 + 8);
                        if (not_zero(p, ((size_t)k * 37 + 8) & ~7UL) >= 0)
                                _exit(1);
                        memset(p, k, (size_t)k * 37);
                        if (k % 3)
                                free(p);
                }
                _exit(0);
        }
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        stop = 1;
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
        if (why[0])
                victim_fail("%s", why);
        victim_pass();
}
