/* For victims that are caught inside a system call: threads and processes that sit in one, known to be there. */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "victim.h"

/* Waits until the task sleeps in the system call nr (-1: in any). */
static inline void await_call(pid_t pid, pid_t tid, long nr)
{
        char path[64], text[128];

        snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
        for (int i = 0; i < 5000; i++) {
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
                if (fd >= 0)
                        close(fd);
                text[n > 0 ? n : 0] = '\0';
                if (n > 0 && strncmp(text, "running", 7) != 0 && strtol(text, NULL, 10) >= 0 &&
                    (nr < 0 || strtol(text, NULL, 10) == nr))
                        return;
                usleep(1000);
        }
        victim_fail("task %d is not in system call %ld but: %s", tid, nr, text);
}

struct blocked {
        const char *name;
        long nr;
        long (*run)(void);
        long want; /* what run must return; errors as -errno */
        pthread_t thread;
        pid_t tid;
        long got;
        double began, ended;
};

static inline double clock_now(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static inline void *blocked_main(void *arg)
{
        struct blocked *b = arg;

        b->began = clock_now(CLOCK_MONOTONIC);
        __atomic_store_n(&b->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
        long got = b->run();
        b->got = got == -1 ? -errno : got;
        b->ended = clock_now(CLOCK_MONOTONIC);
        return NULL;
}

/* Starts a thread per row; returns when each sleeps in its call. */
static inline void block_all(struct blocked *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                CHECK(pthread_create(&rows[i].thread, NULL, blocked_main, &rows[i]) == 0);
        for (size_t i = 0; i < n; i++) {
                pid_t tid;
                while ((tid = __atomic_load_n(&rows[i].tid, __ATOMIC_SEQ_CST)) == 0)
                        usleep(500);
                await_call(getpid(), tid, rows[i].nr);
        }
}

/* Waits at most 10 s for each row and compares what it returned. */
static inline void join_all(struct blocked *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct timespec until;
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_sec += 10;
                if (pthread_timedjoin_np(rows[i].thread, NULL, &until) != 0)
                        victim_fail("%s does not return", rows[i].name);
                if (rows[i].got != rows[i].want)
                        victim_fail("%s returned %ld, not %ld", rows[i].name, rows[i].got, rows[i].want);
        }
}

/* Calls that time out after `seconds`, of which a third is over when the freeze comes.  Each must wait at least that
 * long in all, and not much longer than had it begun anew at the thaw; when strict, no longer (but for a third) than a
 * sleep until the same absolute time does. */
static struct timespec timed_until;

static inline long timed_control(void)
{
        return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &timed_until, NULL);
}

static struct blocked timed_row = {"control", SYS_clock_nanosleep, timed_control, 0, 0, 0, 0, 0, 0};

static inline void timed_begin(struct blocked *rows, size_t n, double seconds)
{
        clock_gettime(CLOCK_MONOTONIC, &timed_until);
        double until = (double)timed_until.tv_sec + (double)timed_until.tv_nsec / 1e9 + seconds;
        timed_until.tv_sec = (time_t)until;
        timed_until.tv_nsec = (long)((until - (double)timed_until.tv_sec) * 1e9);
        block_all(&timed_row, 1);
        block_all(rows, n);
}

static inline void timed_end(struct blocked *rows, size_t n, double seconds, int strict)
{
        join_all(&timed_row, 1);
        join_all(rows, n);
        for (size_t i = 0; i < n; i++) {
                double took = rows[i].ended - rows[i].began;
                if (took < seconds - 0.01)
                        victim_fail("%s waited %.3f s, not %.3f s", rows[i].name, took, seconds);
                double late = rows[i].ended - timed_row.ended - (rows[i].began - timed_row.began);
                if (late > (strict ? seconds / 3 * 0.9 : 5 + 3 * seconds))
                        victim_fail("%s began anew: %.3f s, a control took %.3f s", rows[i].name, took,
                                    timed_row.ended - timed_row.began);
        }
}

static inline void timed_all(struct blocked *rows, size_t n, double seconds, int strict)
{
        timed_begin(rows, n, seconds);
        usleep((useconds_t)(seconds / 3 * 1e6));
        victim_ready();
        victim_wait();
        timed_end(rows, n, seconds, strict);
}

/* A process of one thread that sits in run(); its status is what run() returns. */
static inline pid_t block_process(long nr, int (*run)(void))
{
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
                _exit(run());
        await_call(pid, pid, nr);
        return pid;
}

static inline int status_of(pid_t pid)
{
        int status;

        CHECK(waitpid(pid, &status, 0) == pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define ROWS(r) (sizeof(r) / sizeof((r)[0]))
