/* Processes without a vdso, whose code has system call instructions of its own: one thread of it or more, with memory that a watch would
 * be for.  And one that unmaps it later, and then may get no memory from the watch, but an answer. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

#define SIZE (8UL << 20)

static int unmap_vdso(void)
{
        unsigned long range[8][2];
        char line[512];
        int n = 0, left = 0;
        FILE *f = fopen("/proc/self/maps", "r");

        while (f && fgets(line, sizeof(line), f))
                if (strstr(line, "[vdso]") || strstr(line, "[vvar"))
                        sscanf(line, "%lx-%lx", &range[n][0], &range[n][1]), n++;
        fclose(f);
        for (int i = 0; i < n; i++)
                left += munmap((void *)range[i][0], range[i][1] - range[i][0]) != 0;
        return n - left;
}

static void *idle(void *arg)
{
        for (;;)
                usleep(1000);
        return arg;
}

static void run(int threads, int later)
{
        char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_t t;

        memset(memory, 7, SIZE);
        if (!later && unmap_vdso() == 0)
                _exit(1);
        for (int i = 0; i < threads; i++)
                if (pthread_create(&t, NULL, idle, NULL) != 0)
                        _exit(2);
        kill(getppid(), SIGUSR1);
        victim_wait();
        for (size_t i = 0; i < SIZE; i += 4096)
                if (memory[i] != 7)
                        _exit(3);
        if (later)
                unmap_vdso();
        int done = madvise(memory, SIZE, MADV_DONTNEED);
        if (later ? done != 0 && errno != ENOMEM : done != 0 || memory[SIZE / 2] != 0)
                _exit(4);
        _exit(unmap_vdso() == 0 ? 0 : 5);
}

int main(void)
{
        sigset_t set;
        int status, sig;
        pid_t pid[3];

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        for (int i = 0; i < 3; i++) {
                if ((pid[i] = fork()) == 0)
                        run(i == 1 ? 3 : 0, i == 2);
                sigwait(&set, &sig);
        }
        victim_ready();
        victim_wait();
        for (int i = 0; i < 3; i++) {
                CHECK(waitpid(pid[i], &status, 0) == pid[i]);
                if (status != 0)
                        victim_fail("process %d: status %#x", i, status);
        }
        victim_pass();
}
