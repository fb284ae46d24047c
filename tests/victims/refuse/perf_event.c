/* A perf event is refused by name and counts on.
 * victim: refuse=perf_event */
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        struct perf_event_attr a = {
                .type = PERF_TYPE_SOFTWARE, .size = sizeof(a), .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1};
        int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
        unsigned long before, after;

        if (fd < 0)
                victim_skip("no perf events here");
        victim_ready();
        CHECK(read(fd, &before, 8) == 8);
        victim_wait();
        CHECK(read(fd, &after, 8) == 8 && after >= before);
        victim_pass();
}
