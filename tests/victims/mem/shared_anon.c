/* Shared anonymous memory between three processes, also as a part of a mapping, at other addresses, and after a fork. */
#include "../mem.h"

#define SIZE (64 * PAGE)

int main(void)
{
        char *s = mmap(NULL, SIZE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int st;

        CHECK(s != MAP_FAILED);
        fill(s, SIZE / 2, 3);
        fill(s + SIZE / 2, SIZE / 2, 4);
        volatile int *word = (int *)s;
        word[0] = word[1] = word[2] = 0;
        pid_t a = fork();
        if (a == 0) { /* keeps the upper half only, moved */
                char *to = ANON(SIZE, PROT_NONE);
                char *half = mremap(s + SIZE / 2, SIZE / 2, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to);
                victim_wait();
                while (!word[0])
                        usleep(500);
                if (differs(half + PAGE, SIZE / 2 - PAGE, 99) >= 0)
                        _exit(1);
                fill(half, PAGE, 55);
                word[1] = 1;
                pid_t b = fork();
                if (b == 0) {
                        word[2] = 42;
                        _exit(0);
                }
                waitpid(b, &st, 0);
                _exit(st);
        }
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK_FILLED(s + SIZE / 2, SIZE / 2, 4);
        fill(s + SIZE / 2 + PAGE, SIZE / 2 - PAGE, 99);
        word[0] = 1;
        CHECK(waitpid(a, &st, 0) == a && st == 0);
        CHECK_FILLED(s + SIZE / 2, PAGE, 55);
        CHECK(word[1] == 1 && word[2] == 42);
        victim_pass();
}
