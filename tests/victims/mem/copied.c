/* Memory that is copied when it is thawed: a run longer than the window it comes through, by an odd number of pages, and single pages near
 * each other and far apart.  What is locked is always copied; an owner may not lock so much. */
#include "../mem.h"

#define LONG (4099 * PAGE) /* of 8 MiB windows: two, and three pages */
#define SINGLES 2500       /* more than one call takes */

int main(void)
{
        char *run = ANON(LONG, RW), *near = ANON(2UL * SINGLES * PAGE, RW), *far = ANON(100UL * SINGLES * PAGE, RW);

        CHECK(run != MAP_FAILED && near != MAP_FAILED && far != MAP_FAILED);
        CHECK(mlock(run, LONG) == 0 || errno == ENOMEM || errno == EPERM);
        fill(run, LONG, 1);
        for (uint64_t i = 0; i < SINGLES; i++) {
                fill(near + 2 * i * PAGE, PAGE, 10 + i);
                fill(far + 100 * i * PAGE, PAGE, 100000 + i);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(run, LONG, 1);
        for (uint64_t i = 0; i < SINGLES; i++) {
                CHECK_FILLED(near + 2 * i * PAGE, PAGE, 10 + i);
                CHECK_ZERO(near + (2 * i + 1) * PAGE, PAGE);
                CHECK_FILLED(far + 100 * i * PAGE, PAGE, 100000 + i);
        }
        fill(run, LONG, 2);
        CHECK_FILLED(run, LONG, 2);
        victim_pass();
}
