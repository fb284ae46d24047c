/* Processes forked after the thaw (also by threads, and their children): DONTNEED, FREE, mremap work in them as well. */
#include <pthread.h>

#include "../mem.h"

#define SIZE (64 * PAGE)
static char *area[3];

static int generation(int level)
{
        int st;
        pid_t pid = fork();

        if (pid == 0) {
                char *a = area[0], *b = area[1], *c = area[2];
                if (differs(a, SIZE, 0) >= 0 || differs(b, SIZE, 1) >= 0 || differs(c, SIZE, 2) >= 0)
                        _exit(1);
                if (level > 0)
                        _exit(generation(level - 1));
                if (madvise(a, SIZE, MADV_DONTNEED) != 0 || not_zero(a, SIZE) >= 0)
                        _exit(2);
                char *m = mremap(b, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
                if (m == MAP_FAILED || differs(m, SIZE, 1) >= 0 || not_zero(m + SIZE, SIZE) >= 0)
                        _exit(3);
                if (madvise(c, SIZE, MADV_FREE) != 0)
                        _exit(4);
                fill(c, SIZE, 9);
                _exit(differs(c, SIZE, 9) < 0 ? 0 : 5);
        }
        return waitpid(pid, &st, 0) == pid && WIFEXITED(st) ? WEXITSTATUS(st) : 99;
}

static void *run(void *arg)
{
        return (void *)(long)generation(1);
}

int main(void)
{
        pthread_t t;
        void *r;

        for (size_t i = 0; i < 3; i++) {
                area[i] = ANON(SIZE, RW);
                fill(area[i], SIZE, i);
        }
        victim_ready();
        victim_wait();
        for (int level = 0; level < 3; level++) {
                int bad = generation(level);
                if (bad)
                        victim_fail("level %d, check %d", level, bad);
        }
        CHECK(pthread_create(&t, NULL, run, NULL) == 0 && pthread_join(t, &r) == 0);
        if (r)
                victim_fail("forked by a thread: check %ld", (long)r);
        for (size_t i = 0; i < 3; i++)
                CHECK_FILLED(area[i], SIZE, i); /* the parent's are its own */
        victim_pass();
}
