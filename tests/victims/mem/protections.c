/* PROT_NONE holes, read-only, write-only and executable pages of one mapping; contents under PROT_NONE; mprotect after. */
#include <setjmp.h>

#include "../mem.h"

#define N 40
static sigjmp_buf out;

static void on(int sig)
{
        siglongjmp(out, 1);
}

static int faults(char *p, int write)
{
        volatile char *q = p;

        if (sigsetjmp(out, 1))
                return 1;
        if (write)
                *q = *q;
        else
                (void)*q;
        return 0;
}

int main(void)
{
        static const int prot[] = {PROT_NONE, PROT_READ, RW, PROT_READ | PROT_EXEC, RW | PROT_EXEC};
        static const char *const text[] = {"---p", "r--p", "rw-p", "r-xp", "rwxp"};
        struct sigaction sa = {.sa_handler = on, .sa_flags = SA_NODEFER};
        char *m = ANON(N * PAGE, RW), perms[8];

        sigaction(SIGSEGV, &sa, NULL);
        fill(m, N * PAGE, 6);
        static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
        memcpy(m + 3 * PAGE, code, sizeof(code));
        for (int i = 0; i < N; i++)
                CHECK(mprotect(m + i * (long)PAGE, PAGE, prot[i % 5]) == 0);
        victim_ready();
        victim_wait();
        for (int i = 0; i < N; i++) {
                char *p = m + i * (long)PAGE;
                mapping_of(p, perms, NULL, 0);
                if (strcmp(perms, text[i % 5]) != 0)
                        victim_fail("page %d is %s, not %s", i, perms, text[i % 5]);
                CHECK(faults(p, 0) == (i % 5 == 0) && faults(p, 1) == (i % 5 != 2 && i % 5 != 4));
        }
        int (*f)(void) = (int (*)(void))(void *)(m + 3 * PAGE);
        CHECK(f() == 42);
        CHECK(mprotect(m, N * PAGE, RW) == 0);
        fill(m + 3 * PAGE, PAGE, 0);
        CHECK_FILLED(m, 3 * PAGE, 6);
        for (size_t i = 4; i < N; i++) {
                uint64_t first = (6 + 1) * 0x9e3779b97f4a7c15UL + i * PAGE / 8 * 0xff51afd7ed558ccdUL;
                CHECK(*(uint64_t *)(m + i * PAGE) == first);
        }
        victim_pass();
}
