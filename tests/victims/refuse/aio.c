/* A context of Linux AIO (io_setup) is refused by name, and works on.
 * victim: refuse=asynchronous I/O (io_setup) */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        aio_context_t ctx = 0;
        static char buf[512];
        int fd = open("f", O_RDWR | O_CREAT, 0600);
        struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                          .aio_fildes = (unsigned)fd,
                          .aio_buf = (unsigned long)buf,
                          .aio_nbytes = 512},
                    *list = &cb;
        struct io_event ev;

        if (syscall(SYS_io_setup, 8, &ctx) != 0)
                victim_skip("no AIO here");
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_io_submit, ctx, 1, &list) == 1 && syscall(SYS_io_getevents, ctx, 1, 1, &ev, NULL) == 1 &&
              ev.res == 512);
        victim_pass();
}
