/* Memory protection keys and the rights register of a thread (skipped on processors without). */
#include <setjmp.h>

#include "../mem.h"

static sigjmp_buf out;
static void on(int sig)
{
        siglongjmp(out, 1);
}

int main(void)
{
        int key = pkey_alloc(0, PKEY_DISABLE_WRITE);
        struct sigaction sa = {.sa_handler = on, .sa_flags = SA_NODEFER};
        char *m = ANON(2 * PAGE, RW);

        if (key < 0)
                victim_skip("no protection keys");
        fill(m, 2 * PAGE, 1);
        CHECK(pkey_mprotect(m, PAGE, RW, key) == 0);
        victim_ready();
        victim_wait();
        CHECK_FILLED(m, 2 * PAGE, 1);
        sigaction(SIGSEGV, &sa, NULL);
        if (sigsetjmp(out, 1) == 0) {
                *(volatile char *)m = 1;
                victim_fail("the key does not protect");
        }
        CHECK(pkey_get(key) == PKEY_DISABLE_WRITE && pkey_free(key) == 0);
        victim_pass();
}
