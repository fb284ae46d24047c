/* Mapped files that are deleted: private clean and dirty, shared by two processes, a replaced one, one still open too. */
#include "../mem.h"

static int make(const char *name, uint64_t seed)
{
        static char block[4 * PAGE];
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

        fill(block, sizeof(block), seed);
        CHECK(fd >= 0 && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
        return fd;
}

int main(void)
{
        int a = make("a", 1), b = make("b", 2), c = make("c", 3), st;
        char *clean = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, a, 0),
             *dirty = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, a, 0);
        char *shared = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, b, 0),
             *replaced = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, c, 0);

        CHECK(unlink("a") == 0 && unlink("b") == 0 && unlink("c") == 0);
        close(a);
        close(c);
        close(make("c", 33)); /* a new file of the old name */
        fill(dirty + PAGE, PAGE, 9);
        pid_t pid = fork();
        if (pid == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && *(volatile uint64_t *)(shared + PAGE) != 7; i++)
                        usleep(1000);
                _exit(*(uint64_t *)(shared + PAGE) == 7 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(clean, 4 * PAGE, 1);
        CHECK_FILLED(dirty, PAGE, 1);
        CHECK_FILLED(dirty + PAGE, PAGE, 9);
        CHECK_FILLED(shared, 4 * PAGE, 2);
        CHECK_FILLED(replaced, 4 * PAGE, 3);
        *(volatile uint64_t *)(shared + PAGE) = 7;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        uint64_t w;
        CHECK(pread(b, &w, 8, PAGE) == 8 && w == 7);
        victim_pass();
}
