/* Hints that come one after the other, so that most of them come between two images of the running tree: each is kept. */
#include "../mem.h"

#define PIECES 600

struct kind {
        int advice;
        const char *flag;
        char *memory;
};

/* One piece of each two is given the hint, so that none become one area. */
static int hint(struct kind *k, int i)
{
        return madvise(k->memory + (size_t)i * 2 * PAGE, PAGE, k->advice) == 0;
}

int main(void)
{
        struct kind kinds[] = {{MADV_DONTFORK, " dc ", NULL},
                               {MADV_DONTDUMP, " dd ", NULL},
                               {MADV_WIPEONFORK, " wf ", NULL},
                               {MADV_NOHUGEPAGE, " nh ", NULL}};
        char perms[8], flags[256];
        int n = 0;

        for (int i = 0; i < 4; i++) {
                kinds[i].memory = ANON(2UL * PIECES * PAGE, RW);
                fill(kinds[i].memory, 2UL * PIECES * PAGE, (uint64_t)i);
        }
        victim_ready();
        while (!victim_gone()) {
                for (int i = 0; n < PIECES && i < 4; i++)
                        CHECK(hint(&kinds[i], n));
                n += n < PIECES;
                usleep(1000);
        }
        for (int k = 0; k < n; k += 7)
                for (int i = 0; i < 4; i++) {
                        mapping_of(kinds[i].memory + (size_t)k * 2 * PAGE, perms, flags, sizeof(flags));
                        if (!strstr(flags, kinds[i].flag))
                                victim_fail("the hint%s is gone from piece %d of %d: %s", kinds[i].flag, k, n, flags);
                        mapping_of(kinds[i].memory + ((size_t)k * 2 + 1) * PAGE, perms, flags, sizeof(flags));
                        if (strstr(flags, kinds[i].flag))
                                victim_fail("the hint%s has come to what is beside piece %d: %s", kinds[i].flag, k,
                                            flags);
                }
        victim_pass();
}
