/* The action of SIGTRAP: ignored, with its flags and mask.  A trap that is ignored makes the kernel take the default.  Also after a
 * call that the memory watch makes in the victim's place. */
#include <sys/mman.h>

#include "../victim.h"

#define SIZE (8UL << 20)

int main(void)
{
        struct sigaction sa = {.sa_handler = SIG_IGN, .sa_flags = (int)SA_RESTART}, now;

        sigaddset(&sa.sa_mask, SIGUSR1);
        CHECK(sigaction(SIGTRAP, &sa, NULL) == 0 && sigaction(SIGTRAP, NULL, &sa) == 0);
        char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        memset(memory, 1, SIZE);
        victim_ready();
        victim_wait();
        CHECK(madvise(memory, SIZE, MADV_DONTNEED) == 0 && memory[SIZE / 2] == 0);
        CHECK(sigaction(SIGTRAP, NULL, &now) == 0);
        CHECK(now.sa_flags == sa.sa_flags && memcmp(&now.sa_mask, &sa.sa_mask, 8) == 0);
        CHECK(now.sa_handler == SIG_IGN);
        victim_pass();
}
