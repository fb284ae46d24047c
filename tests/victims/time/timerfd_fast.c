/* Periodic timerfds that fire while they are read: each goes on. */
#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>

#include "../victim.h"

#define COUNT 48

int main(void)
{
        int fd[COUNT];

        for (int i = 0; i < COUNT; i++) {
                struct itimerspec ticks = {.it_value = {0, 60000 + i * 1000}, .it_interval = {0, 60000 + i * 1000}};
                fd[i] = timerfd_create(i % 2 ? CLOCK_MONOTONIC : CLOCK_BOOTTIME, TFD_CLOEXEC);
                CHECK(fd[i] >= 0 && timerfd_settime(fd[i], 0, &ticks, NULL) == 0);
        }
        victim_ready();
        victim_wait();
        for (int i = 0; i < COUNT; i++)
                for (int k = 0; k < 3; k++) {
                        struct pollfd p = {.fd = fd[i], .events = POLLIN};
                        uint64_t n;
                        CHECK(poll(&p, 1, 5000) == 1 && read(fd[i], &n, 8) == 8 && n > 0);
                }
        victim_pass();
}
