/* A parent and children that share pages copy-on-write since their fork: each sees its own bytes and writes only them. */
#include "../mem.h"

#define SIZE (512 * PAGE)
#define KIDS 5

int main(void)
{
        char *m = ANON(SIZE, RW);
        pid_t kid[KIDS];
        int st;

        fill(m, SIZE, 1);
        for (size_t k = 0; k < KIDS; k++) {
                kid[k] = fork();
                if (kid[k] == 0) {
                        fill(m + k * 64 * PAGE, 16 * PAGE, 100 + k);
                        victim_wait();
                        if (differs(m + k * 64 * PAGE, 16 * PAGE, 100 + k) >= 0 || (k && differs(m, 16 * PAGE, 1) >= 0))
                                _exit(1);
                        memset(m, (int)k, SIZE);
                        usleep(20000);
                        _exit(m[SIZE - 1] == (char)k && m[77] == (char)k ? 0 : 2);
                }
        }
        usleep(30000);
        victim_ready();
        victim_wait();
        usleep(10000);
        CHECK_FILLED(m, SIZE, 1);
        for (int k = 0; k < KIDS; k++)
                CHECK(waitpid(kid[k], &st, 0) == kid[k] && st == 0);
        CHECK_FILLED(m, SIZE, 1);
        victim_pass();
}
