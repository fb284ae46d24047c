/* Monotonic, raw, coarse and boot clocks go on without a jump; the wall clock is right; vdso and system call agree. */
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>

#include "../victim.h"

static const clockid_t ids[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};
static volatile double before[4]; /* kept up to date until the freeze */

static double now(clockid_t id)
{
        struct timespec ts;
        clock_gettime(id, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(void)
{
        victim_ready();
        double last = now(CLOCK_MONOTONIC), jump = 0;
        while (!victim_gone()) {
                for (int i = 0; i < 4; i++) {
                        double t = now(ids[i]);
                        if (before[i] != 0 && (t < before[i] || t > before[i] + 15))
                                victim_fail("clock %d jumped by %.6f", ids[i], t - before[i]);
                        before[i] = t;
                }
                double t = now(CLOCK_MONOTONIC);
                if (t - last > jump)
                        jump = t - last;
                last = t;
                usleep(500);
        }
        for (int i = 0; i < 4; i++) {
                struct timespec ts;
                CHECK(syscall(SYS_clock_gettime, ids[i], &ts) == 0);
                double kernel = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9, vdso = now(ids[i]);
                CHECK(vdso >= kernel && vdso < kernel + 5);
        }
        struct timespec disk;
        struct timeval tv;
        CHECK(clock_gettime(CLOCK_REALTIME, &disk) == 0 && gettimeofday(&tv, NULL) == 0);
        CHECK(tv.tv_sec - disk.tv_sec <= 5 && labs((long)(time(NULL) - disk.tv_sec)) <= 5);
        victim_pass();
}
