/* A SIGTRAP that is blocked and pending: the engine's own traps could not be told from it.
 * victim: refuse=pending SIGTRAP */
#include "../victim.h"

int main(void)
{
        struct timespec none = {0, 0};
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGTRAP) == 0);
        victim_ready();
        victim_wait();
        CHECK(sigtimedwait(&set, &info, &none) == SIGTRAP && info.si_code == SI_USER && info.si_pid == getpid());
        victim_pass();
}
