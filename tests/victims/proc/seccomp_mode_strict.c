/* The mode that leaves read, write, exit and sigreturn: of a process, and of one thread among others.  A
 * signal's handler runs in it; a call of another kind ends it.
 * victim: owner_refuse=strict seccomp mode */
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static char *much;

static void handle(int sig)
{
        (void)sig;
}

/* What it reads, it writes back; at the end of the file it ends, or does what it may not. */
static void echo(const int *ends, int last)
{
        char byte;

        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
                syscall(SYS_exit, 1);
        while (read(ends[0], &byte, 1) == 1 && byte != 'q') {
                byte = (char)(byte + much[(unsigned char)byte]);
                if (write(ends[1], &byte, 1) != 1)
                        syscall(SYS_exit, 2);
        }
        if (last)
                syscall(SYS_getpid);
        syscall(SYS_exit, 33);
}

static void *echo_thread(void *arg)
{
        echo(arg, 0);
        return NULL;
}

static pid_t start(int way[2], int thread, int last)
{
        int to[2], from[2];
        pthread_t t;

        CHECK(pipe(to) == 0 && pipe(from) == 0);
        pid_t pid = fork();
        if (pid != 0) {
                way[0] = from[0];
                way[1] = to[1];
                return pid;
        }
        int ends[2] = {to[0], from[1]};
        signal(SIGUSR1, handle);
        if (!thread)
                echo(ends, last);
        pthread_create(&t, NULL, echo_thread, ends);
        pthread_join(t, NULL);
        _exit(44);
}

static void ask(const int *way, char letter)
{
        char byte = letter;

        CHECK(write(way[1], &byte, 1) == 1 && read(way[0], &byte, 1) == 1 && byte == letter + 1);
}

int main(void)
{
        static const int wanted[3] = {33 << 8, SIGKILL, 44 << 8};
        int way[3][2], status;
        pid_t pid[3];

        /* Enough to be mapped from the image, and watched, where that can be. */
        much = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(much != MAP_FAILED);
        memset(much, 1, 8 << 20);
        for (int i = 0; i < 3; i++)
                pid[i] = start(way[i], i == 2, i == 1);
        for (int i = 0; i < 3; i++)
                ask(way[i], 'a');
        victim_ready();
        victim_wait();
        for (int i = 0; i < 3; i++) {
                CHECK(kill(pid[i], SIGUSR1) == 0);
                ask(way[i], 'b');
                CHECK(write(way[i][1], "q", 1) == 1 && waitpid(pid[i], &status, 0) == pid[i]);
                if (status != wanted[i])
                        victim_fail("process %d ended with %#x", i, status);
        }
        victim_pass();
}
