/* The rest of prctl: THP disable, machine-check policy, tsc mode, speculation as inherited, names of threads, io flusher. */
#include <sys/prctl.h>

#include "../victim.h"

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

int main(void)
{
        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
        int spec = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
        victim_ready();
        victim_wait();
        CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
        CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
        CHECK(prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0) == spec);
        victim_pass();
}
