/* Filters that all threads of a process have from one of them: only then may one set another for all (SECCOMP_FILTER_FLAG_TSYNC).  With
 * all as they were made, when one has a filter more and sets the new one, and when the first thread has ended.
 * victim: owner_refuse=seccomp filter */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../forbid.h"

#define THREADS 3

enum { PLAIN, ONE_MORE, ENDED, KINDS };

static volatile int ready, forbidden_now;

static void *obey(void *arg)
{
        __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
        while (!forbidden_now)
                usleep(1000);
        if (!fails_with(SYS_getpriority, 77) || !fails_with(SYS_setpriority, 78))
                _exit(3);
        __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
        return arg;
}

static void *forbid_all(void *arg)
{
        int *pipe_end = arg;

        while (ready < THREADS)
                usleep(1000);
        if (write(*pipe_end, "", 1) != 1)
                _exit(5);
        victim_wait();
        if (forbid(SYS_setpriority, 78, SECCOMP_FILTER_FLAG_TSYNC) != 0)
                _exit(4);
        ready = 0;
        forbidden_now = 1;
        while (ready < THREADS)
                usleep(1000);
        _exit(fails_with(SYS_setpriority, 78) ? 0 : 6);
}

static void *forbid_more(void *arg)
{
        if (forbid(SYS_getsid, 79, 0) != 0)
                _exit(2);
        return forbid_all(arg);
}

static void confine(int kind, int *pipe_end)
{
        pthread_t t;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || forbid(SYS_getpriority, 77, 0) != 0)
                _exit(1);
        for (int i = 0; i < THREADS - (kind == ONE_MORE); i++)
                pthread_create(&t, NULL, obey, NULL);
        if (kind == PLAIN)
                forbid_all(pipe_end);
        pthread_create(&t, NULL, kind == ONE_MORE ? forbid_more : forbid_all, pipe_end);
        if (kind == ONE_MORE)
                obey(NULL);
        for (; kind != ENDED;)
                pause();
        syscall(SYS_exit, 0);
}

int main(void)
{
        int ends[2], status;
        pid_t pid[KINDS];
        char byte;

        CHECK(pipe(ends) == 0);
        for (int kind = 0; kind < KINDS; kind++)
                if ((pid[kind] = fork()) == 0)
                        confine(kind, &ends[1]);
        for (int kind = 0; kind < KINDS; kind++)
                CHECK(read(ends[0], &byte, 1) == 1);
        usleep(20000);
        victim_ready();
        victim_wait();
        for (int kind = 0; kind < KINDS; kind++) {
                CHECK(waitpid(pid[kind], &status, 0) == pid[kind]);
                if (status != 0)
                        victim_fail("kind %d: status %#x", kind, status);
        }
        victim_pass();
}
