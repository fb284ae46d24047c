/* Kinds of memory: private and shared, file mappings, guard pages, brk, a stack that grows, hints, holes. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "victim.h"

#define MB (1 << 20)
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

static char bss[5 * MB];
static const char *const text = "constant";

static int deep(int n)
{
        volatile char room[4096];

        room[0] = (char)n;
        return n == 0 ? room[0] : deep(n - 1) + room[0] - (char)n;
}

int main(void)
{
        int f = open("mapped", O_RDWR | O_CREAT, 0600);

        CHECK(f >= 0 && ftruncate(f, 4 * MB) == 0 && pwrite(f, "file data", 9, 8192) == 9);
        char *shared = mmap(NULL, 4 * MB, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
        char *private = mmap(NULL, 4 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
        char *anon = mmap(NULL, 16 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *both = mmap(NULL, 2 * MB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        char *ro = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *none = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *wipe = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *drop = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_DROPPABLE, -1, 0);
        char *sparse =
                mmap(NULL, 1UL << 34, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *executable = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && private != MAP_FAILED && anon != MAP_FAILED && both != MAP_FAILED &&
              sparse != MAP_FAILED);
        CHECK(munmap(hole + 4096, 4096) == 0);
        memset(private + 2 * MB, 'p', MB);
        private[5] = 'q';
        for (int i = 0; i < 16 * MB; i += 4096)
                anon[i] = (char)(i / 4096);
        madvise(anon + 4 * MB, MB, MADV_DONTNEED);
        memset(both, 's', MB);
        memset(ro, 'r', MB);
        memset(none, 'n', MB);
        memset(wipe, 'w', MB);
        sparse[0] = sparse[(1UL << 33)] = sparse[(1UL << 34) - 1] = 1;
        hole[0] = hole[2 * 4096] = 'h';
        memcpy(executable, "\xb8\x2a\x00\x00\x00\xc3", 6);
        CHECK(mprotect(ro, MB, PROT_READ) == 0 && mprotect(none, MB, PROT_NONE) == 0 &&
              madvise(wipe, MB, MADV_WIPEONFORK) == 0);
        bss[3 * MB] = 'b';
        char *heap = sbrk(3 * MB);
        memset(heap, 'k', 3 * MB);
        void *end = sbrk(0);
        victim_ready();
        victim_wait();
        CHECK(strcmp(text, "constant") == 0 && memcmp(private + 8192, "file data", 9) == 0 &&
              memcmp(shared + 8192, "file data", 9) == 0);
        CHECK(private[2 * MB] == 'p' && private[3 * MB - 1] == 'p' && private[3 * MB] == 0 && private[5] == 'q' &&
              shared[5] == 0);
        for (int i = 0; i < 16 * MB; i += 4096)
                CHECK(anon[i] == (i >= 4 * MB && i < 5 * MB ? 0 : (char)(i / 4096)));
        CHECK(both[0] == 's' && both[MB - 1] == 's' && both[MB] == 0);
        CHECK(ro[77] == 'r' && (wipe[5] == 0 || wipe[5] == 'w')); /* a thaw may wipe, a source that ran on not */
        CHECK(mprotect(none, MB, PROT_READ) == 0 && none[4096] == 'n');
        CHECK(sparse[0] == 1 && sparse[1UL << 33] == 1 && sparse[(1UL << 34) - 1] == 1 && sparse[4096] == 0);
        CHECK(hole[0] == 'h' && hole[2 * 4096] == 'h' && ((int (*)(void))(void *)executable)() == 42);
        CHECK(bss[3 * MB] == 'b' && bss[0] == 0 && heap[3 * MB - 1] == 'k' && sbrk(0) == end && sbrk(MB) == end);
        CHECK(drop == MAP_FAILED || drop[0] == 0);
        CHECK(deep(1000) == 0);
        shared[1] = 'S';
        char c = 0;
        CHECK(pread(f, &c, 1, 1) == 1 && c == 'S');
        wipe[7] = 'w';
        pid_t child = fork();
        if (child == 0) {
                both[0] = 'c';
                anon[0] = 99;
                _exit(wipe[7] == 0 && anon[4096] == 1 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0 && both[0] == 'c' && anon[0] == 0);
        victim_pass();
}
