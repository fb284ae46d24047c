/* fs and gs bases (gs set by the program), thread-local data, stack protector and pointer guard after the thaw. */
#include <asm/prctl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include "../victim.h"

#define N 8
static __thread char pad[5000], *where;
static __thread long initialised = 0x1234;
static const char *bad;
static jmp_buf before; /* mangled with the pointer guard */
static volatile int here;

static unsigned long gs_word(void)
{
        unsigned long v;
        __asm__ volatile("movq %%gs:8, %0" : "=r"(v));
        return v;
}

static void *run(void *arg)
{
        unsigned long *area = calloc(4, sizeof(*area)), base = 0;

        where = pad;
        area[1] = 0xabc000 + (unsigned long)arg;
        initialised += (long)arg;
        syscall(SYS_arch_prctl, ARCH_SET_GS, area);
        unsigned long fs = 0, fs2 = 0;
        syscall(SYS_arch_prctl, ARCH_GET_FS, &fs);
        __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
        victim_wait();
        syscall(SYS_arch_prctl, ARCH_GET_FS, &fs2);
        syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
        if (fs != fs2 || where != pad || initialised != 0x1234 + (long)arg)
                bad = "fs";
        if (base != (unsigned long)area || gs_word() != 0xabc000 + (unsigned long)arg)
                bad = "gs";
        syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
        return arg;
}

int main(void)
{
        pthread_t t[N];
        volatile int jumped = 0;

        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        while (here < N)
                usleep(1000);
        if (setjmp(before) == 0) {
                victim_ready();
                victim_wait();
                jumped = 1;
                longjmp(before, 1);
        }
        CHECK(jumped);
        for (int i = 0; i < N; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("%s is another one", bad);
        victim_pass();
}
