/* Mappings of /dev/zero, private and shared, and of a file on tmpfs. */
#include "../mem.h"

int main(void)
{
        int z = open("/dev/zero", O_RDWR), st;
        char *priv = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE, z, 0), *shared = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, z, 0);

        CHECK(priv != MAP_FAILED && shared != MAP_FAILED);
        close(z);
        fill(priv, 4 * PAGE, 1);
        fill(shared, 4 * PAGE, 2);
        pid_t pid = fork();
        if (pid == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && *(volatile uint64_t *)(shared + 5 * PAGE) != 7; i++)
                        usleep(1000);
                _exit(*(uint64_t *)(shared + 5 * PAGE) == 7 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(priv, 4 * PAGE, 1);
        CHECK_ZERO(priv + 4 * PAGE, 4 * PAGE);
        CHECK_FILLED(shared, 4 * PAGE, 2);
        *(volatile uint64_t *)(shared + 5 * PAGE) = 7;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
