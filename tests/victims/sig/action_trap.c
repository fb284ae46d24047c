/* The action of SIGTRAP: ignored, with its flags and mask.  A trap that is ignored makes the kernel take the default. */
#include "../victim.h"

int main(void)
{
        struct sigaction sa = {.sa_handler = SIG_IGN, .sa_flags = (int)SA_RESTART}, now;

        sigaddset(&sa.sa_mask, SIGUSR1);
        CHECK(sigaction(SIGTRAP, &sa, NULL) == 0 && sigaction(SIGTRAP, NULL, &sa) == 0);
        victim_ready();
        victim_wait();
        CHECK(sigaction(SIGTRAP, NULL, &now) == 0);
        CHECK(now.sa_flags == sa.sa_flags && memcmp(&now.sa_mask, &sa.sa_mask, 8) == 0);
        CHECK(now.sa_handler == SIG_IGN);
        victim_pass();
}
