/* Mappings beyond the end of a file, shared and private, of one that was cut after it was mapped, and of one that was renamed: what is
 * there is, what is not raises SIGBUS, and comes when the file grows.
 * victim: flavours=unfrozen,kill,twice,tracked,owner */
#include "../mem.h"

#include <setjmp.h>

static sigjmp_buf back;

static void on_bus(int sig)
{
        siglongjmp(back, sig);
}

static int readable(const volatile char *p)
{
        if (sigsetjmp(back, 1))
                return 0;
        (void)*p;
        return 1;
}

static int make(const char *name, size_t size, uint64_t seed)
{
        static char block[8 * PAGE];
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

        fill(block, sizeof(block), seed);
        CHECK(fd >= 0 && write(fd, block, size) == (ssize_t)size);
        return fd;
}

int main(void)
{
        int small = make("small", PAGE + 100, 1), cut = make("cut", 8 * PAGE, 2), moved = make("moved", 4 * PAGE, 3);
        char *shared = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, small, 0),
             *private = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, small, 0),
             *shorter = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, cut, 0),
             *copy = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE, cut, 0),
             *renamed = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, moved, 0);

        signal(SIGBUS, on_bus);
        CHECK(shared != MAP_FAILED && private != MAP_FAILED && shorter != MAP_FAILED && copy != MAP_FAILED &&
              renamed != MAP_FAILED);
        fill(private, PAGE, 11);
        fill(shorter, 8 * PAGE, 22);
        fill(copy, 8 * PAGE, 33);
        CHECK(ftruncate(cut, 3 * PAGE) == 0 && rename("moved", "elsewhere") == 0);
        close(moved);
        close(make("moved", PAGE, 99));
        victim_ready();
        victim_wait();
        CHECK_FILLED(shared, PAGE, 1);
        CHECK_ZERO(shared + PAGE + 104, PAGE - 104);
        CHECK_FILLED(private, PAGE, 11);
        CHECK(readable(private + PAGE) && !readable(private + 2 * PAGE) && !readable(shared + 3 * PAGE));
        CHECK_FILLED(shorter, 3 * PAGE, 22);
        CHECK_FILLED(copy, 3 * PAGE, 33);
        CHECK(!readable(shorter + 3 * PAGE) && !readable(copy + 3 * PAGE) && !readable(copy + 7 * PAGE));
        CHECK(ftruncate(small, 4 * PAGE) == 0 && readable(shared + 3 * PAGE) && readable(private + 3 * PAGE));
        CHECK_FILLED(renamed, 4 * PAGE, 3);
        renamed[0] ^= 1;
        char c;
        int fd = open("elsewhere", O_RDONLY);
        CHECK(fd >= 0 && read(fd, &c, 1) == 1 && c == renamed[0]);
        victim_pass();
}
