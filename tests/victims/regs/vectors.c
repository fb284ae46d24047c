/* XMM, YMM and ZMM lanes and mask registers of threads that spin and never leave user mode, checked lane by lane. */
#include <immintrin.h>
#include <pthread.h>

#include "../victim.h"

#define N 6
static volatile int go, spinning;
static volatile long bad;

__attribute__((target("avx512f"))) static void spin512(int id)
{
        unsigned want[16 * 8], got[16 * 8];

        for (int i = 0; i < 128; i++)
                want[i] = (unsigned)(id * 1000003 + i * 7919);
        unsigned short k = (unsigned short)(0x5a5a + id), k2 = 0;
        __asm__ volatile("vmovdqu32 (%[w]), %%zmm0\n vmovdqu32 64(%[w]), %%zmm1\n vmovdqu32 128(%[w]), %%zmm7\n "
                         "vmovdqu32 192(%[w]), %%zmm15\n"
                         "vmovdqu32 256(%[w]), %%zmm16\n vmovdqu32 320(%[w]), %%zmm17\n vmovdqu32 384(%[w]), %%zmm25\n "
                         "vmovdqu32 448(%[w]), %%zmm31\n"
                         "kmovw %[k], %%k3\n"
                         "lock incl %[s]\n"
                         "1: pause\n cmpl $0, %[go]\n je 1b\n"
                         "vmovdqu32 %%zmm0, (%[g])\n vmovdqu32 %%zmm1, 64(%[g])\n vmovdqu32 %%zmm7, 128(%[g])\n "
                         "vmovdqu32 %%zmm15, 192(%[g])\n"
                         "vmovdqu32 %%zmm16, 256(%[g])\n vmovdqu32 %%zmm17, 320(%[g])\n vmovdqu32 %%zmm25, 384(%[g])\n "
                         "vmovdqu32 %%zmm31, 448(%[g])\n"
                         "kmovw %%k3, %%eax\n movw %%ax, %[k2]\n"
                         : [k2] "=m"(k2), [s] "+m"(spinning)
                         : [w] "r"(want), [g] "r"(got), [k] "r"((unsigned)k), [go] "m"(go)
                         : "rax", "memory", "xmm0", "xmm1", "xmm7", "xmm15", "xmm16", "xmm17", "xmm25", "xmm31");
        for (int i = 0; i < 128; i++)
                if (want[i] != got[i])
                        bad = 512000 + i;
        if (k != k2)
                bad = 9;
}

__attribute__((target("avx"))) static void spin256(int id)
{
        unsigned want[8 * 4], got[8 * 4];

        for (int i = 0; i < 32; i++)
                want[i] = (unsigned)(id * 1000033 + i * 7907);
        __asm__ volatile("vmovdqu (%[w]), %%ymm0\n vmovdqu 32(%[w]), %%ymm3\n vmovdqu 64(%[w]), %%ymm8\n vmovdqu "
                         "96(%[w]), %%ymm15\n"
                         "lock incl %[s]\n"
                         "1: pause\n cmpl $0, %[go]\n je 1b\n"
                         "vmovdqu %%ymm0, (%[g])\n vmovdqu %%ymm3, 32(%[g])\n vmovdqu %%ymm8, 64(%[g])\n vmovdqu "
                         "%%ymm15, 96(%[g])\n"
                         : [s] "+m"(spinning)
                         : [w] "r"(want), [g] "r"(got), [go] "m"(go)
                         : "memory", "xmm0", "xmm3", "xmm8", "xmm15");
        for (int i = 0; i < 32; i++)
                if (want[i] != got[i])
                        bad = 256000 + i;
}

static void *run(void *arg)
{
        int id = (int)(long)arg;

        if (id % 2 && __builtin_cpu_supports("avx512f"))
                spin512(id);
        else
                spin256(id);
        return arg;
}

int main(void)
{
        pthread_t t[N];

        if (!__builtin_cpu_supports("avx"))
                victim_skip("no AVX");
        for (long i = 0; i < N; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        while (spinning < N)
                usleep(1000);
        victim_ready();
        victim_wait();
        go = 1;
        for (int i = 0; i < N; i++)
                pthread_join(t[i], NULL);
        if (bad)
                victim_fail("lane %ld", bad);
        victim_pass();
}
