/* What every victim includes; the protocol is in README.md. */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline void victim_ready(void)
{
        if (write(STDOUT_FILENO, "READY\n", 6) != 6)
                _exit(2);
}

static inline int victim_gone(void)
{
        return access("go", F_OK) == 0;
}

static inline void victim_wait(void)
{
        while (!victim_gone()) {
                struct timespec ts = {.tv_nsec = 2000000};
                nanosleep(&ts, NULL);
        }
}

__attribute__((noreturn, format(printf, 2, 3))) static inline void victim_end(int status, const char *format, ...)
{
        char line[512];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(line, sizeof(line), format, ap);
        va_end(ap);
        if (n > (int)sizeof(line) - 1)
                n = (int)sizeof(line) - 1;
        if (write(STDOUT_FILENO, line, (size_t)n) != n)
                _exit(2);
        _exit(status);
}

#define victim_pass() victim_end(0, "PASS\n")
#define victim_fail(f, ...) victim_end(1, "FAIL: %s:%d: " f "\n", strrchr(__FILE__, '/') + 1, __LINE__, ##__VA_ARGS__)
#define victim_skip(why) victim_end(77, "SKIP: %s\n", why)
#define CHECK(condition)                                                                     \
        do {                                                                                 \
                if (!(condition))                                                            \
                        victim_fail("%s (errno %d %s)", #condition, errno, strerror(errno)); \
        } while (0)
