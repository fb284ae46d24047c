/* All general registers and flags of a thread that spins in assembly, the red zone below its stack pointer included. */
#include <pthread.h>

#include "../victim.h"

static volatile int go, spinning;
static unsigned long out[18] __attribute__((used));

static void *spin(void *arg)
{
        __asm__ volatile("push %%rbp\n push %%rbx\n"
                         "movabs $0x1111111111111111, %%rbx\n movabs $0x2222222222222222, %%rcx\n movabs "
                         "$0x3333333333333333, %%rdx\n"
                         "movabs $0x4444444444444444, %%rsi\n movabs $0x5555555555555555, %%rdi\n movabs "
                         "$0x6666666666666666, %%rbp\n"
                         "movabs $0x7777777777777777, %%r8\n movabs $0x8888888888888888, %%r9\n movabs "
                         "$0x9999999999999999, %%r10\n"
                         "movabs $0xaaaaaaaaaaaaaaaa, %%r11\n movabs $0xbbbbbbbbbbbbbbbb, %%r12\n movabs "
                         "$0xcccccccccccccccc, %%r13\n"
                         "movabs $0xdddddddddddddddd, %%r14\n movabs $0xeeeeeeeeeeeeeeee, %%r15\n"
                         "movq %%r8, -128(%%rsp)\n movq %%r9, -8(%%rsp)\n"
                         "lock incl spinning(%%rip)\n"
                         "std\n"
                         "1: pause\n movl go(%%rip), %%eax\n testl %%eax, %%eax\n je 1b\n"
                         "pushfq\n cld\n pop %%rax\n movq %%rax, out+112(%%rip)\n"
                         "movq %%rbx, out(%%rip)\n movq %%rcx, out+8(%%rip)\n movq %%rdx, out+16(%%rip)\n movq %%rsi, "
                         "out+24(%%rip)\n"
                         "movq %%rdi, out+32(%%rip)\n movq %%rbp, out+40(%%rip)\n movq %%r8, out+48(%%rip)\n movq "
                         "%%r9, out+56(%%rip)\n"
                         "movq %%r10, out+64(%%rip)\n movq %%r11, out+72(%%rip)\n movq %%r12, out+80(%%rip)\n movq "
                         "%%r13, out+88(%%rip)\n"
                         "movq %%r14, out+96(%%rip)\n movq %%r15, out+104(%%rip)\n"
                         "movq -128(%%rsp), %%rax\n movq %%rax, out+120(%%rip)\n"
                         "pop %%rbx\n pop %%rbp\n" ::
                                 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                                   "r15", "memory", "cc");
        return arg;
}

int main(void)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, spin, NULL) == 0);
        while (!spinning)
                usleep(1000);
        victim_ready();
        victim_wait();
        go = 1;
        pthread_join(t, NULL);
        for (int i = 0; i < 14; i++)
                if (out[i] != 0x1111111111111111UL * (unsigned long)(i + 1))
                        victim_fail("register %d is %lx", i, out[i]);
        CHECK(out[14] & 0x400); /* the direction flag */
        CHECK(out[15] == 0x7777777777777777UL);
        victim_pass();
}
