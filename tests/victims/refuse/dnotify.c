/* fcntl F_NOTIFY: the kernel does not tell what was asked for.
 * victim: refuse=F_NOTIFY */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

static volatile sig_atomic_t told;

static void on_signal(int sig)
{
        (void)sig;
        told++;
}

int main(void)
{
        signal(SIGIO, on_signal);
        CHECK(mkdir("d", 0700) == 0);
        if (fcntl(open("d", O_RDONLY), F_NOTIFY, DN_CREATE | DN_MULTISHOT) != 0)
                victim_skip("no F_NOTIFY here");
        victim_ready();
        victim_wait();
        CHECK(told == 0 && open("d/new", O_RDWR | O_CREAT, 0600) >= 0 && told == 1);
        victim_pass();
}
