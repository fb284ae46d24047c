/* /proc/uptime, sysinfo and the start time of the process agree with the boot clock after the thaw. */
#include <sys/sysinfo.h>

#include "../victim.h"

int main(void)
{
        struct sysinfo info;
        struct timespec ts;
        double up;

        victim_ready();
        victim_wait();
        CHECK(clock_gettime(CLOCK_BOOTTIME, &ts) == 0 && sysinfo(&info) == 0);
        FILE *f = fopen("/proc/uptime", "r");
        CHECK(f && fscanf(f, "%lf", &up) == 1);
        CHECK(up - (double)ts.tv_sec < 5 && up - (double)ts.tv_sec > -5);
        CHECK(labs(info.uptime - ts.tv_sec) < 5);
        victim_pass();
}
