/* Actions of all signals but SIGTRAP (action_trap.c): handler, SIG_IGN, flags (SIGINFO, RESTART, NODEFER, RESETHAND, ONSTACK,
 * NOCLDWAIT), masks. */
#include <sys/wait.h>

#include "../victim.h"

static void plain(int sig)
{
        (void)sig;
}
static void info(int sig, siginfo_t *i, void *u)
{
        (void)sig;
        (void)i;
        (void)u;
}

static struct sigaction want[65];

int main(void)
{
        struct sigaction now;

        for (int s = 1; s <= 64; s++) {
                if (s == SIGKILL || s == SIGSTOP || s == SIGTRAP || s == 32 || s == 33)
                        continue;
                struct sigaction sa = {0};
                if (s % 4 == 0) {
                        sa.sa_sigaction = info;
                        sa.sa_flags = SA_SIGINFO | SA_RESTART | (s % 8 ? SA_ONSTACK : SA_NODEFER);
                } else if (s % 4 == 1)
                        sa.sa_handler = SIG_IGN;
                else if (s % 4 == 2) {
                        sa.sa_handler = plain;
                        sa.sa_flags = (int)SA_RESETHAND;
                } else
                        sa.sa_handler = SIG_DFL;
                if (s == SIGCHLD)
                        sa.sa_flags |= SA_NOCLDWAIT | SA_NOCLDSTOP;
                sigaddset(&sa.sa_mask, s % 30 + 1);
                sigaddset(&sa.sa_mask, 40 + s % 20);
                CHECK(sigaction(s, &sa, NULL) == 0);
                CHECK(sigaction(s, NULL, &want[s]) == 0);
        }
        victim_ready();
        victim_wait();
        for (int s = 1; s <= 64; s++) {
                if (s == SIGKILL || s == SIGSTOP || s == SIGTRAP || s == 32 || s == 33)
                        continue;
                CHECK(sigaction(s, NULL, &now) == 0);
                if (now.sa_handler != want[s].sa_handler || now.sa_flags != want[s].sa_flags ||
                    memcmp(&now.sa_mask, &want[s].sa_mask, 8) != 0)
                        victim_fail("the action of signal %d changed", s);
        }
        victim_pass();
}
