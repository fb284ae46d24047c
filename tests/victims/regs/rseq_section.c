/* Threads caught within a restartable sequence: it is aborted, as the kernel does after any interruption, and never goes on where it
 * was on another CPU. */
#include <pthread.h>
#include <stddef.h>
#include <sys/rseq.h>

#include "../victim.h"

#define THREADS 8
#define ROUNDS 30000 /* of the loop in the sequence: about a millisecond */

static volatile int stop, bad;
static volatile unsigned long done[THREADS], aborted[THREADS];

enum outcome { DONE, ABORTED, MOVED };

/* Takes the number of the CPU, waits, and compares it with what the CPU says itself, all in one sequence. */
static enum outcome sequence(struct rseq *r)
{
        unsigned outcome = ABORTED;

        __asm__ volatile(
                ".pushsection __rseq_cs, \"aw\"\n\t"
                ".balign 32\n"
                "1:      .long 0, 0\n\t"
                ".quad 2f, 4f - 2f, 5f\n\t"
                ".popsection\n\t"
                "lea 1b(%%rip), %%rax\n\t"
                "mov %%rax, %c[cs](%[r])\n"
                "2:      mov %c[cpu](%[r]), %%ecx\n\t"
                "mov %[rounds], %%edx\n"
                "3:      pause\n\t"
                "dec %%edx\n\t"
                "jnz 3b\n\t"
                "mov $0x7b, %%eax\n\t" /* the segment whose limit is the number of the CPU */
                "lsl %%eax, %%eax\n\t"
                "and $0xfff, %%eax\n\t"
                "cmp %%eax, %%ecx\n\t"
                "jne 6f\n\t"
                "movl %[done], %[outcome]\n"
                "4:      jmp 7f\n\t"
                ".byte 0x0f, 0xb9, 0x3d\n\t"
                ".long %c[signature]\n"
                "5:      jmp 7f\n"
                "6:      movl %[moved], %[outcome]\n"
                "7:"
                : [outcome] "+m"(outcome)
                : [r] "r"(r), [cs] "i"(offsetof(struct rseq, rseq_cs)), [cpu] "i"(offsetof(struct rseq, cpu_id)),
                  [rounds] "i"(ROUNDS), [done] "i"(DONE), [moved] "i"(MOVED), [signature] "i"(RSEQ_SIG)
                : "rax", "rcx", "rdx", "memory", "cc");
        return outcome;
}

static void *run(void *arg)
{
        struct rseq *r = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
        size_t me = (size_t)arg;

        while (!stop)
                switch (sequence(r)) {
                case DONE:
                        done[me]++;
                        break;
                case ABORTED:
                        aborted[me]++;
                        break;
                case MOVED:
                        bad = 1;
                        break;
                }
        return arg;
}

int main(void)
{
        pthread_t t[THREADS];
        unsigned long before[THREADS];

        if (__rseq_size == 0)
                victim_skip("no rseq in this C library");
        for (size_t i = 0; i < THREADS; i++)
                CHECK(pthread_create(&t[i], NULL, run, (void *)i) == 0);
        for (size_t i = 0; i < THREADS; i++)
                while (done[i] == 0)
                        usleep(500);
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < THREADS; i++)
                before[i] = done[i];
        for (size_t i = 0; i < THREADS; i++)
                for (int k = 0; k < 5000 && done[i] < before[i] + 3; k++)
                        usleep(1000);
        stop = 1;
        for (size_t i = 0; i < THREADS; i++) {
                pthread_join(t[i], NULL);
                if (done[i] < before[i] + 3)
                        victim_fail("thread %zu did not go on: %lu, %lu before, %lu aborted", i, done[i], before[i],
                                    aborted[i]);
        }
        if (bad)
                victim_fail("a sequence went on on another CPU");
        victim_pass();
}
