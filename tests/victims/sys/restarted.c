/* Calls that the kernel goes on with by restart_syscall, interrupted again: of them only the registers are left, and any that the call
 * does not take holds what was in it before.  Each row could be taken for another call by those, or by where its memory is: this
 * program is not position independent, so that a pointer of it can be as small as a number.
 * All of it twice: once interrupted by a stop before the freeze, once not before.
 * victim: cflags=-no-pie */
#include <linux/futex.h>
#include <poll.h>

#include "../blocked.h"

#define SECONDS 0.9
#define MS 900
#define FDS 128

struct call {
        const void *a;
        unsigned long b, c;
        const void *d;
        unsigned long e, f;
};

/* Through it in all six registers; errors as -errno. */
static long make(long nr, struct call c)
{
        long r;
        register const void *d __asm__("r10") = c.d;
        register unsigned long e __asm__("r8") = c.e, f __asm__("r9") = c.f;

        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "a"(nr), "D"(c.a), "S"(c.b), "d"(c.c), "r"(d), "r"(e), "r"(f)
                         : "rcx", "r11", "memory");
        return r;
}

#define LENGTH                  \
        {                       \
                0, MS * 1000000 \
        }

static struct timespec low = LENGTH, low_again = LENGTH;
/* What the kernel writes at each stop: the flavour exact lets 32 bytes of a page be others. */
static struct timespec low_rests[2] __attribute__((aligned(32)));
static const struct timespec other = {5, 0}; /* a valid one, left in r10 */
static int low_word = 7, null_word;
static int pipe_fds[2];
static struct pollfd low_fd = {.events = POLLIN}, low_endless = {.events = POLLIN};

static struct timespec absolute(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        ts.tv_nsec += MS * 1000000;
        ts.tv_sec += ts.tv_nsec / 1000000000;
        ts.tv_nsec %= 1000000000;
        return ts;
}

static long sleeps(void)
{
        struct timespec ts = LENGTH;
        unsigned long junk[2] = {-1UL, -1UL};
        return make(SYS_nanosleep, (struct call){.a = &ts, .c = 1, .d = junk});
}
/* As Go's monitor does: the word is what is in rdx, and r10 points to a time limit. */
static long sleeps_like_futex(void)
{
        struct timespec ts = LENGTH, stale = {5, 0};
        return make(SYS_nanosleep, (struct call){.a = &ts, .c = 0, .d = &stale, .f = 1});
}
static long sleeps_with_low_limit(void)
{
        struct timespec ts = LENGTH;
        return make(SYS_nanosleep, (struct call){.a = &ts, .c = 0, .d = &other});
}
static long sleeps_low(void)
{
        return make(SYS_nanosleep, (struct call){.a = &low, .c = (unsigned long)&other, .d = &other});
}
static long sleeps_with_rest(void)
{
        struct timespec ts = LENGTH, rest;
        return make(SYS_nanosleep, (struct call){.a = &ts, .b = (unsigned long)&rest, .c = MS, .d = &other});
}
static long sleeps_with_low_rest(void)
{
        struct timespec ts = LENGTH;
        return make(SYS_nanosleep, (struct call){.a = &ts, .b = (unsigned long)&low_rests[0], .c = MS});
}
static long by_clock(void)
{
        struct timespec ts = LENGTH;
        return make(SYS_clock_nanosleep,
                    (struct call){.a = (void *)CLOCK_MONOTONIC, .c = (unsigned long)&ts, .e = -1UL, .f = -1UL});
}
static long by_clock_low(void)
{
        return make(SYS_clock_nanosleep,
                    (struct call){.a = (void *)CLOCK_BOOTTIME, .c = (unsigned long)&low_again, .d = &low_rests[1]});
}
static long by_clock_zero(void)
{
        struct timespec ts = LENGTH;
        return make(SYS_clock_nanosleep, (struct call){.a = (void *)CLOCK_REALTIME, .c = (unsigned long)&ts});
}
static long polls_fds(size_t n)
{
        struct pollfd fds[FDS];
        struct timespec stale = {5, 0};

        for (size_t i = 0; i < n; i++)
                fds[i] = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
        return make(SYS_poll, (struct call){.a = fds, .b = n, .c = MS, .d = &stale, .f = 1});
}
static long polls_9(void)
{
        return polls_fds(FUTEX_WAIT_BITSET);
}
static long polls_128(void)
{
        return polls_fds(FUTEX_WAIT_PRIVATE);
}
/* An int: the upper half of its register may hold anything. */
static long polls_low(void)
{
        return make(SYS_poll, (struct call){.a = &low_fd, .b = 1, .c = 0x7ffe00000000 | MS, .d = &other});
}
static long polls_nothing(void)
{
        return make(SYS_poll, (struct call){.c = MS, .d = &other});
}
static long polls_nothing_at(void)
{
        long nothing[2] = {0, 0};
        return make(SYS_poll, (struct call){.a = nothing, .c = 0x100000000 | MS, .d = (void *)-1});
}
static long waits(void)
{
        struct timespec ts = LENGTH;
        int word = 7;
        return make(SYS_futex, (struct call){.a = &word, .b = FUTEX_WAIT, .c = 7, .d = &ts});
}
/* The word and what follows it would be a time of 2^32 s and a little: a semaphore with one that waits. */
static long waits_on_semaphore(void)
{
        struct timespec ts = LENGTH;
        int semaphore[4] = {0, 1, 0, 0};
        return make(SYS_futex, (struct call){.a = semaphore, .b = FUTEX_WAIT, .c = 0, .d = &ts});
}
/* And here of 5 ns: nothing that can be read tells it from sleeps_like_futex(). */
static long waits_like_sleep(void)
{
        struct timespec ts = LENGTH;
        int words[4] = {0, 0, 5, 0};
        return make(SYS_futex, (struct call){.a = words, .b = FUTEX_WAIT, .c = 0, .d = &ts});
}
static long waits_low(void)
{
        return make(SYS_futex, (struct call){.a = &low_word, .b = FUTEX_WAIT_PRIVATE, .c = 7, .d = &low});
}
static long waits_low_until(void)
{
        static struct timespec ts[2];
        static int used;
        struct timespec *mine = &ts[__atomic_fetch_add(&used, 1, __ATOMIC_SEQ_CST)];

        *mine = absolute();
        return make(SYS_futex, (struct call){.a = &null_word, .b = FUTEX_WAIT_BITSET, .d = mine, .f = 0xffffffff});
}
static long waits_until(void)
{
        struct timespec ts = absolute();
        return make(SYS_futex, (struct call){.a = &null_word, .b = FUTEX_WAIT_BITSET_PRIVATE, .d = &ts, .f = 1});
}
static long polls_low_endless(void)
{
        return make(SYS_poll, (struct call){.a = &low_endless, .b = 1, .c = -1UL, .d = &other});
}

static const struct blocked kinds[] = {
        {.name = "nanosleep", .nr = SYS_nanosleep, .run = sleeps},
        {.name = "nanosleep like futex", .nr = SYS_nanosleep, .run = sleeps_like_futex},
        {.name = "nanosleep, low limit", .nr = SYS_nanosleep, .run = sleeps_with_low_limit},
        {.name = "nanosleep, low", .nr = SYS_nanosleep, .run = sleeps_low},
        {.name = "nanosleep with a rest", .nr = SYS_nanosleep, .run = sleeps_with_rest},
        {.name = "nanosleep with a low rest", .nr = SYS_nanosleep, .run = sleeps_with_low_rest},
        {.name = "clock_nanosleep", .nr = SYS_clock_nanosleep, .run = by_clock},
        {.name = "clock_nanosleep, low", .nr = SYS_clock_nanosleep, .run = by_clock_low},
        {.name = "clock_nanosleep realtime", .nr = SYS_clock_nanosleep, .run = by_clock_zero},
        {.name = "poll of 9", .nr = SYS_poll, .run = polls_9},
        {.name = "poll of 128", .nr = SYS_poll, .run = polls_128},
        {.name = "poll, low", .nr = SYS_poll, .run = polls_low},
        {.name = "poll of nothing", .nr = SYS_poll, .run = polls_nothing},
        {.name = "poll of nothing somewhere", .nr = SYS_poll, .run = polls_nothing_at},
        {.name = "FUTEX_WAIT", .nr = SYS_futex, .run = waits, .want = -ETIMEDOUT},
        {.name = "FUTEX_WAIT on a semaphore", .nr = SYS_futex, .run = waits_on_semaphore, .want = -ETIMEDOUT},
        {.name = "FUTEX_WAIT like nanosleep", .nr = SYS_futex, .run = waits_like_sleep, .want = -ETIMEDOUT},
        {.name = "FUTEX_WAIT_PRIVATE, low", .nr = SYS_futex, .run = waits_low, .want = -ETIMEDOUT},
        {.name = "FUTEX_WAIT_BITSET, low", .nr = SYS_futex, .run = waits_low_until, .want = -ETIMEDOUT},
        {.name = "FUTEX_WAIT_BITSET_PRIVATE", .nr = SYS_futex, .run = waits_until, .want = -ETIMEDOUT},
};
#define KINDS ROWS(kinds)

/* By a child: nobody stops who has to go on. */
static void stop_and_continue(void)
{
        pid_t parent = getpid(), pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
                char path[32], text[512];
                snprintf(path, sizeof(path), "/proc/%d/stat", parent);
                kill(parent, SIGSTOP);
                for (int i = 0; i < 5000; i++) {
                        int fd = open(path, O_RDONLY | O_CLOEXEC);
                        ssize_t n = read(fd, text, sizeof(text) - 1);
                        close(fd);
                        text[n > 0 ? n : 0] = '\0';
                        if (strstr(text, ") T "))
                                break;
                        usleep(1000);
                }
                kill(parent, SIGCONT);
                _exit(0);
        }
        CHECK(status_of(pid) == 0);
}

int main(void)
{
        static struct blocked rows[2 * KINDS];
        struct blocked endless[] = {
                {.name = "poll without end", .nr = SYS_poll, .run = polls_low_endless, .want = 1},
                {.name = "poll without end", .nr = SYS_poll, .run = polls_low_endless, .want = 1},
        };

        memcpy(rows, kinds, sizeof(kinds));
        memcpy(rows + KINDS, kinds, sizeof(kinds));
        CHECK(pipe(pipe_fds) == 0);
        low_fd.fd = low_endless.fd = pipe_fds[0];
        timed_begin(rows, KINDS, SECONDS);
        block_all(endless, 1);
        stop_and_continue();
        for (size_t i = 0; i < KINDS; i++)
                await_call(getpid(), rows[i].tid, SYS_restart_syscall);
        await_call(getpid(), endless[0].tid, SYS_restart_syscall);
        block_all(rows + KINDS, KINDS);
        block_all(endless + 1, 1);
        victim_ready();
        victim_wait();
        timed_end(rows, 2 * KINDS, SECONDS, 0);
        CHECK(write(pipe_fds[1], "x", 1) == 1);
        join_all(endless, ROWS(endless));
        victim_pass();
}
