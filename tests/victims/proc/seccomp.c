/* A seccomp filter of the program's own is kept, or freezing is refused by name: never thawed without it.
 * victim: owner_refuse=seccomp filter */
#include "../forbid.h"

int main(void)
{
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(forbid(SYS_getpriority, 77, 0) == 0);
        CHECK(fails_with(SYS_getpriority, 77));
        victim_ready();
        victim_wait();
        CHECK(fails_with(SYS_getpriority, 77));
        CHECK(prctl(PR_GET_SECCOMP) == 2);
        victim_pass();
}
