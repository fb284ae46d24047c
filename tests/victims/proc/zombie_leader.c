/* Processes whose main thread has ended while others go on: with all that is a process's, and stopped. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

#define SIZE (8UL << 20)

static unsigned char *memory;
static int out[2], in[2];
static pid_t child;

static void await_go(void)
{
        while (!victim_gone())
                usleep(2000);
}

static void *other(void *arg)
{
        await_go();
        _exit(33);
        return arg;
}

/* Its own end is not the process's, which ends with the last of its threads. */
static void *reader(void *arg)
{
        char byte = 0, name[16] = "";
        int status;

        prctl(PR_SET_NAME, "reader");
        if (read(in[0], &byte, 1) != 1 || byte != 'g')
                _exit(2);
        for (size_t i = 0; i < SIZE; i++)
                if (memory[i] != (unsigned char)(i / 4096 + 1))
                        _exit(3);
        if (madvise(memory, SIZE / 2, MADV_DONTNEED) != 0 || memory[4096] != 0 || memory[SIZE / 2] == 0)
                _exit(4);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 5)
                _exit(5);
        FILE *f = fopen("/proc/self/comm", "r"); /* the leader's */
        if (!f || fscanf(f, "%15s", name) != 1 || strcmp(name, "ended") != 0)
                _exit(6);
        if (prctl(PR_GET_NAME, name) != 0 || strcmp(name, "reader") != 0)
                _exit(7);
        if (write(out[1], "d", 1) != 1)
                _exit(8);
        syscall(SYS_exit, 11);
        return arg;
}

static void *waiter(void *arg)
{
        await_go();
        if (write(in[1], "g", 1) != 1)
                _exit(9);
        syscall(SYS_exit, 11);
        return arg;
}

static void be_whole(void)
{
        pthread_t t;

        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < SIZE; i++)
                memory[i] = (unsigned char)(i / 4096 + 1);
        child = fork();
        if (child == 0) {
                await_go();
                _exit(5);
        }
        if (pthread_create(&t, NULL, reader, NULL) != 0 || pthread_create(&t, NULL, waiter, NULL) != 0)
                _exit(1);
        prctl(PR_SET_NAME, "ended");
        syscall(SYS_exit, 7);
}

static pid_t fork_other(void)
{
        pid_t pid = fork();

        if (pid == 0) {
                pthread_t t;
                pthread_create(&t, NULL, other, NULL);
                pthread_exit(NULL);
        }
        return pid;
}

static int status_of(pid_t pid)
{
        int st;

        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
        return WEXITSTATUS(st);
}

int main(void)
{
        siginfo_t info;
        char byte;

        CHECK(pipe(in) == 0 && pipe(out) == 0);
        pid_t plain = fork_other(), stopped = fork_other(), whole = fork();
        if (whole == 0)
                be_whole();
        usleep(50000);
        CHECK(kill(stopped, SIGSTOP) == 0 && waitid(P_PID, (id_t)stopped, &info, WSTOPPED) == 0);
        usleep(50000);
        victim_ready();
        victim_wait();
        CHECK(status_of(plain) == 33);
        usleep(20000);
        CHECK(waitpid(stopped, NULL, WNOHANG) == 0 && kill(stopped, SIGCONT) == 0 && status_of(stopped) == 33);
        int st = status_of(whole);
        if (st != 11)
                victim_fail("the process with everything ended with %d", st);
        CHECK(read(out[0], &byte, 1) == 1 && byte == 'd');
        victim_pass();
}
