/* Arenas that grow by mprotect within what they have reserved, as malloc's do, while images of the running tree are made: what was
 * hinted for one of them holds for all of it, also behind the border of two that lie side by side, and not for the other. */
#include "../mem.h"

#define ARENAS 4
#define PAGES 600 /* of each */

int main(void)
{
        static const struct {
                int advice;
                const char *flag;
        } kinds[ARENAS] = {{0, NULL}, {MADV_DONTFORK, " dc "}, {MADV_NOHUGEPAGE, " nh "}, {MADV_DONTDUMP, " dd "}};
        char *memory = ANON((size_t)ARENAS * PAGES * PAGE, PROT_NONE), perms[8], flags[256];
        int n = 0;

        for (int i = 0; i < ARENAS; i++)
                CHECK(!kinds[i].advice ||
                      madvise(memory + (size_t)i * PAGES * PAGE, (size_t)PAGES * PAGE, kinds[i].advice) == 0);
        victim_ready();
        while (!victim_gone()) {
                for (int i = 0; n < PAGES && i < ARENAS; i++) {
                        char *page = memory + ((size_t)i * PAGES + (size_t)n) * PAGE;
                        CHECK(mprotect(page, PAGE, RW) == 0);
                        fill(page, PAGE, (uint64_t)(i * PAGES + n));
                }
                n += n < PAGES;
                usleep(1000);
        }
        for (int i = 0; i < ARENAS; i++)
                for (int k = 0; k < PAGES; k++) {
                        char *page = memory + ((size_t)i * PAGES + (size_t)k) * PAGE;
                        int grown = k < n;
                        if (grown)
                                CHECK_FILLED(page, PAGE, (uint64_t)(i * PAGES + k));
                        if (k % 37 && k != n && k != n - 1)
                                continue;
                        mapping_of(page, perms, flags, sizeof(flags));
                        CHECK((perms[1] == 'w') == grown);
                        for (int other = 1; other < ARENAS; other++)
                                if (!strstr(flags, kinds[other].flag) != (other != i))
                                        victim_fail("page %d of arena %d, of %d, has the hints%s", k, i, n, flags);
                }
        victim_pass();
}
