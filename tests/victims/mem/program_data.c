/* The program's own data, written in long and short runs, which a thaw maps from the memory image in the place of the program's file: every
 * byte, after writes, mprotect and fork between two thaws, too; what MADV_DONTNEED brings back is the program's, in every generation and in
 * who was forked since.  A thaw is told by the wall clock, which went on meanwhile, unlike the monotonic. */
#include <errno.h>
#include <time.h>

#include "../mem.h"

#define PAGES 160
#define ONES 0x0707070707070707UL

static char data[PAGES * PAGE] __attribute__((aligned(4096))) = {[0 ... PAGES * PAGE - 1] = 7};
static char zeros[32 * PAGE] __attribute__((aligned(4096))); /* right behind it, but no part of the file */
static long *seed;                                           /* of each page's pattern; -1: as in the program */

static long skew(void)
{
        struct timespec r, m;

        clock_gettime(CLOCK_REALTIME, &r);
        clock_gettime(CLOCK_MONOTONIC, &m);
        return (r.tv_sec - m.tv_sec) * 1000000 + (r.tv_nsec - m.tv_nsec) / 1000;
}

static void dirty(int from, int to, long with)
{
        for (int i = from; i < to; i++) {
                fill(data + (long)i * (long)PAGE, PAGE, (uint64_t)(with + i));
                seed[i] = with + i;
        }
}

static void drop(int from, int to)
{
        CHECK(madvise(data + (long)from * (long)PAGE, (size_t)(to - from) * PAGE, MADV_DONTNEED) == 0);
        for (int i = from; i < to; i++)
                seed[i] = -1;
}

static void verify(const char *when)
{
        for (int i = 0; i < PAGES; i++) {
                const char *page = data + (long)i * (long)PAGE;
                long at = seed[i] >= 0 ? differs(page, PAGE, (uint64_t)seed[i]) : -1;
                for (size_t k = 0; seed[i] < 0 && at < 0 && k < PAGE / 8; k++)
                        if (((const uint64_t *)(const void *)page)[k] != ONES)
                                at = (long)k * 8;
                if (at >= 0)
                        victim_fail("%s page %d (%s) differs at byte %ld", when, i,
                                    seed[i] < 0 ? "the program's" : "written", at);
        }
}

/* Drops pages that were written before the first thaw, since, and never. */
static void drop_some(void)
{
        int spare = dup(0);

        CHECK(spare >= 0 && close(spare) == 0);
        CHECK(madvise(data, 8 * PAGE, MADV_WIPEONFORK) < 0 && errno == EINVAL);
        CHECK(madvise(data, 8 * PAGE, MADV_FREE) < 0 && errno == EINVAL);
        verify("after calls in vain");
        drop(0, 13);
        verify("after the first drop");
        drop(30, 102);
        verify("after the second drop");
        dirty(5, 9, 700);
        drop(7, 8);
        verify("after the third drop");
        CHECK_FILLED(zeros, sizeof(zeros), 99);
        CHECK(madvise(zeros, sizeof(zeros), MADV_DONTNEED) == 0);
        CHECK_ZERO(zeros, sizeof(zeros));
        CHECK(dup(0) == spare && close(spare) == 0);
}

int main(void)
{
        int go[2], status;
        pid_t child = 0;

        seed = ANON(PAGE, RW);
        CHECK(seed != MAP_FAILED && PAGES * sizeof(*seed) <= PAGE);
        memset(seed, 0xff, PAGE);
        dirty(0, 40, 1000);
        dirty(48, 51, 2000);
        dirty(100, PAGES, 3000);
        fill(zeros, sizeof(zeros), 99);
        /* Whatever lies between: so that all is one run of pages. */
        for (uintptr_t p = (uintptr_t)data + sizeof(data); p < (uintptr_t)zeros; p += PAGE)
                *(volatile char *)p = *(volatile char *)p;
        verify("at first");
        long before = skew();
        victim_ready();
        while (!victim_gone() && skew() - before < 3000)
                usleep(500);
        verify("thawed");
        dirty(3, 4, 4000); /* in a run that is mapped now: short, long, with another protection */
        dirty(10, 22, 5000);
        dirty(44, 46, 6000);
        CHECK(mprotect(data + 24 * PAGE, 4 * PAGE, PROT_READ) == 0);
        dirty(115, 116, 6500);
        CHECK(mprotect(data + 110 * PAGE, 20 * PAGE, PROT_READ) == 0 &&
              mprotect(data + 110 * PAGE, 20 * PAGE, RW) == 0);
        CHECK(pipe(go) == 0 && (child = fork()) >= 0);
        if (child == 0) {
                char c;
                dirty(60, 70, 7000);
                dirty(120, 121, 8000);
                close(go[1]);
                CHECK(read(go[0], &c, 1) == 0);
                verify("the child's");
                drop_some();
                _exit(33);
        }
        close(go[0]);
        victim_wait();
        verify("at the end");
        CHECK(mprotect(data + 24 * PAGE, 4 * PAGE, RW) == 0);
        dirty(26, 27, 9000);
        verify("made writable");
        close(go[1]);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 33);
        verify("beside the child");
        drop_some();
        drop(0, PAGES);
        verify("after the last drop");
        victim_pass();
}
