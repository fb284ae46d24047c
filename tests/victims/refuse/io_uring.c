/* A ring of io_uring is refused by name, the program runs on.
 * victim: refuse=io_uring */
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        struct io_uring_params p = {0};
        int fd = (int)syscall(SYS_io_uring_setup, 8, &p);

        if (fd < 0)
                victim_skip("no io_uring here");
        char *ring = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          fd, IORING_OFF_SQ_RING);
        CHECK(ring != MAP_FAILED);
        victim_ready();
        victim_wait();
        CHECK(*(unsigned *)(ring + p.sq_off.ring_entries) == p.sq_entries);
        CHECK(syscall(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0) == 0);
        victim_pass();
}
