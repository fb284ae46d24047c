/* 5,000 mappings with other protections side by side. */
#include "../mem.h"

#define N 5000

int main(void)
{
        char *m = ANON(N * PAGE, RW);

        for (size_t i = 0; i < N; i++)
                *(uint64_t *)(m + i * PAGE + 8) = i * 3 + 1;
        for (size_t i = 0; i < N; i += 2)
                CHECK(mprotect(m + i * PAGE, PAGE, PROT_READ) == 0);
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < N; i++) {
                CHECK(*(uint64_t *)(m + i * PAGE + 8) == i * 3 + 1 && *(uint64_t *)(m + i * PAGE) == 0);
                if (i % 2)
                        *(uint64_t *)(m + i * PAGE) = 1;
        }
        victim_pass();
}
