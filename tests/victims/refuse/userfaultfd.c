/* A userfaultfd of the program's own is refused by name; its registration works on.
 * victim: refuse=userfaultfd */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../victim.h"

static char *area;

static void *touch(void *arg)
{
        return (void *)(long)area[0];
}

int main(void)
{
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
        struct uffdio_api api = {.api = UFFD_API};
        pthread_t t;
        void *r;

        if (fd < 0)
                victim_skip("no userfaultfd here");
        CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
        area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct uffdio_register reg = {.range = {(unsigned long)area, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        CHECK(ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
        victim_ready();
        victim_wait();
        static char page[4096] __attribute__((aligned(4096)));
        struct uffd_msg msg;
        page[0] = 42;
        CHECK(pthread_create(&t, NULL, touch, NULL) == 0);
        CHECK(read(fd, &msg, sizeof(msg)) == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT);
        struct uffdio_copy copy = {.dst = (unsigned long)area, .src = (unsigned long)page, .len = 4096};
        CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0 && pthread_join(t, &r) == 0 && r == (void *)42);
        victim_pass();
}
