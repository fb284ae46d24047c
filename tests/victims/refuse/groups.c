/* A process in more supplementary groups than are read.
 * victim: refuse=groups */
#include <grp.h>

#include "../victim.h"

#define MANY 3000

int main(void)
{
        static gid_t group[MANY], now[MANY];

        for (gid_t i = 0; i < MANY; i++)
                group[i] = i + 7;
        if (setgroups(MANY, group) != 0)
                victim_skip("no groups here");
        victim_ready();
        victim_wait();
        CHECK(getgroups(MANY, now) == MANY && memcmp(group, now, sizeof(now)) == 0);
        victim_pass();
}
