/* madvise and mremap on memory of before the thaw by processes that nobody may trace: one was undumpable before, one becomes so after.
 * A call does what it should or fails; what was there never comes back.
 * victim: owner_again=may not be traced */
#include <sys/prctl.h>

#include "../mem.h"

#define SIZE (256 * PAGE)

static void discard(char *p, uint64_t seed)
{
        CHECK_FILLED(p, SIZE, seed);
        if (madvise(p, SIZE, MADV_DONTNEED) == 0)
                CHECK_ZERO(p, SIZE);
        else {
                CHECK(errno == ENOMEM);
                CHECK_FILLED(p, SIZE, seed);
        }
}

static void grow(char *p, uint64_t seed)
{
        char *q = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE);

        if (q == MAP_FAILED) {
                CHECK(errno == ENOMEM);
                CHECK_FILLED(p, SIZE, seed);
        } else {
                CHECK_FILLED(q, SIZE, seed);
                CHECK_ZERO(q + SIZE, SIZE);
        }
}

int main(void)
{
        char *a = ANON(SIZE, RW), *gap = ANON(PAGE, PROT_NONE), *b = ANON(SIZE, RW);
        int st, pair[2];
        char byte;

        fill(a, SIZE, 1);
        fill(b, SIZE, 2);
        CHECK(gap != MAP_FAILED && pipe(pair) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                CHECK(prctl(PR_SET_DUMPABLE, 0) == 0 && write(pair[1], "x", 1) == 1);
                victim_wait();
                CHECK(prctl(PR_GET_DUMPABLE) == 0);
                discard(a, 1);
                grow(b, 2);
                _exit(0);
        }
        CHECK(read(pair[0], &byte, 1) == 1);
        victim_ready();
        victim_wait();
        CHECK(prctl(PR_GET_DUMPABLE) == 1 && prctl(PR_SET_DUMPABLE, 0) == 0);
        discard(a, 1);
        grow(b, 2);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
