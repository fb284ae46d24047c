/* eventfds: counter, semaphore kind, zero, non-blocking, the highest value, shared with a child that waits. */
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        uint64_t n, max = UINT64_MAX - 1;
        int a = eventfd(5, 0), s = eventfd(3, EFD_SEMAPHORE), z = eventfd(0, EFD_NONBLOCK),
            m = eventfd(0, EFD_NONBLOCK), w = eventfd(0, 0), st;

        CHECK(write(a, &(uint64_t){7}, 8) == 8 && write(m, &max, 8) == 8);
        pid_t pid = fork();
        if (pid == 0)
                _exit(read(w, &n, 8) == 8 && n == 9 ? 0 : 1);
        usleep(10000);
        victim_ready();
        victim_wait();
        CHECK(read(a, &n, 8) == 8 && n == 12);
        for (int i = 0; i < 3; i++)
                CHECK(read(s, &n, 8) == 8 && n == 1);
        CHECK(read(z, &n, 8) == -1 && errno == EAGAIN);
        CHECK(write(m, &(uint64_t){1}, 8) == -1 && errno == EAGAIN && read(m, &n, 8) == 8 && n == max);
        CHECK(write(w, &(uint64_t){9}, 8) == 8);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
