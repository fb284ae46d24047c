/* Sleeps end in time, never early: nanosleep, clock_nanosleep relative and absolute, in threads. */
#include "../blocked.h"

#define T 0.9
static long by_nanosleep(void)
{
        struct timespec ts = {0, 900000000};
        return syscall(SYS_nanosleep, &ts, NULL);
}
static long by_clock(void)
{
        struct timespec ts = {0, 900000000}, left;
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &left);
}
static long by_realtime(void)
{
        struct timespec ts = {0, 900000000};
        return clock_nanosleep(CLOCK_REALTIME, 0, &ts, NULL);
}
static long by_boottime(void)
{
        struct timespec ts = {0, 900000000};
        return clock_nanosleep(CLOCK_BOOTTIME, 0, &ts, NULL);
}
static long until_wall(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += 1;
        return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &ts, NULL);
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "nanosleep", .nr = SYS_nanosleep, .run = by_nanosleep},
                {.name = "clock_nanosleep", .nr = SYS_clock_nanosleep, .run = by_clock},
                {.name = "clock_nanosleep realtime", .nr = SYS_clock_nanosleep, .run = by_realtime},
                {.name = "clock_nanosleep boottime", .nr = SYS_clock_nanosleep, .run = by_boottime},
        };
        struct blocked wall = {.name = "absolute realtime", .nr = SYS_clock_nanosleep, .run = until_wall};

        block_all(&wall, 1);
        timed_all(rows, ROWS(rows), T, 0);
        join_all(&wall, 1);
        victim_pass();
}
