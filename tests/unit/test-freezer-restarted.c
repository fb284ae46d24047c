/* Which call restart_syscall goes on with, told from registers and the memory that they point to: here that of the test itself. */
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/tracee.h"
#include "lib/test.h"

#define RESTARTBLOCK (-516ULL) /* ERESTART_RESTARTBLOCK */
#define LOW 0x10000000UL       /* where a program that is not position independent might have its variables */

/* What the arguments of the rows point to. */
struct memory {
        struct timespec length, rest, invalid, none, endless;
        int word[4], like_sleep[4], semaphore[4];
        struct timespec odd;
        struct pollfd fds[FUTEX_WAIT_PRIVATE], ready[2];
        long zeros[2];
};

static const struct memory filled = {
        .length = {0, 900000000},
        .rest = {0, 500},
        .invalid = {1, 0x7f0012345678},
        .endless = {INT64_MAX, 999999999},
        .odd = {1L << 33, 0},
        .fds = {{.fd = 5, .events = POLLIN}},
        .word = {7, -1, -1, -1},
        .like_sleep = {7, 0, 5, 0},
        .semaphore = {0, 1, 0, 0},
        .ready = {{.fd = 1, .events = POLLIN}, {.fd = 1, .events = POLLIN, .revents = POLLIN}},
};

struct row {
        uint64_t want;
        enum cop_asleep_in seen;
        uint64_t arg[6];
};

static void check(const struct row *rows, size_t n)
{
        _cleanup_close_ int mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        struct cop_proc p = {.mem_fd = mem_fd};

        for (size_t i = 0; i < n; i++) {
                const uint64_t *a = rows[i].arg;
                struct user_regs_struct regs = {.orig_rax = SYS_restart_syscall,
                                                .rax = RESTARTBLOCK,
                                                .rdi = a[0],
                                                .rsi = a[1],
                                                .rdx = a[2],
                                                .r10 = a[3],
                                                .r8 = a[4],
                                                .r9 = a[5]};
                uint64_t got = cop_restarted_call(&p, &regs, rows[i].seen);
                if (got != rows[i].want)
                        FAIL("row %zu: %lu, not %lu", i, (unsigned long)got, (unsigned long)rows[i].want);
        }
}

#define CHECK_ROWS(rows) check(rows, sizeof(rows) / sizeof((rows)[0]))
#define AT(field) ((uint64_t)(uintptr_t)(field))

/* Of each call all that its registers and memory can be by chance.  m: at a high address, or at one as small as a number. */
static void check_memory(const struct memory *m)
{
        uint64_t length = AT(&m->length), rest = AT(&m->rest), invalid = AT(&m->invalid), none = AT(&m->none);
        const struct row rows[] = {
                /* r10, rdx and the rest of nanosleep */
                {SYS_nanosleep, 0, {length, 0, 0, 0, 0, 0}},
                {SYS_nanosleep, 0, {length, 0, 900, invalid, 0, 0}},
                {SYS_nanosleep, 0, {length, 0, 0, invalid, 0, 0}},
                {SYS_nanosleep, 0, {length, 0, 0, none, 0, 0}},
                {SYS_nanosleep, 0, {length, 0, 0, rest, 0, 0}},
                {SYS_nanosleep, 0, {length, 0, length, rest, length, rest}},
                {SYS_nanosleep, 0, {length, rest, 900, rest, 0, 1}},
                {SYS_nanosleep, 0, {length, length, 900, 0, 0, 1}},
                {SYS_nanosleep, 0, {AT(&m->endless), 0, 0, none, 0, 0}},
                {SYS_nanosleep, 0, {AT(&m->endless), 0, 900, 0, 0, 0}},
                {SYS_nanosleep, 0, {AT(&m->odd), rest, 900, 0, 0, 0}},
                {SYS_clock_nanosleep, 0, {CLOCK_REALTIME, 0, length, 0, 0, 0}},
                {SYS_clock_nanosleep, 0, {CLOCK_MONOTONIC, 0, length, rest, 1, 1}},
                {SYS_clock_nanosleep, 0, {(uint32_t)-6, 0, length, 0, 0, 0}},
                {SYS_clock_nanosleep, 0, {-6UL, 0, length, 0, 0, 0}},
                /* a number of descriptors that is an operation of futex, the upper half of an int */
                {SYS_poll, 0, {0, 0, 900, length, 0, 0}},
                {SYS_poll, 0, {0, 0, UINT32_MAX, 0, 0, 0}},
                {SYS_poll, 0, {0, 0, -1UL, length, length, length}},
                {SYS_poll, 0, {AT(m->zeros), 0, 0xabc00000384, invalid, 0, 0}},
                {SYS_poll, 0, {AT(m->fds), 1, 0xabc00000384, length, 0, 0}},
                {SYS_poll, 0, {AT(m->fds), FUTEX_WAIT_BITSET, 900, length, 0, 1}},
                {SYS_poll, 0, {AT(m->fds), FUTEX_WAIT_PRIVATE, -1UL, length, 0, 1}},
                {SYS_poll, 0, {AT(m->fds), FUTEX_WAIT_BITSET, 5, length, 0, 0}},
                /* private or not, until the real time, with words that have been changed since */
                {SYS_futex, 0, {AT(m->word), FUTEX_WAIT, 7, length, 0, 0}},
                {SYS_futex, 0, {AT(m->word), FUTEX_WAIT, 8, length, 0, 0}},
                {SYS_futex, 0, {AT(m->word), FUTEX_WAIT_PRIVATE, 7, length, 0, 0}},
                {SYS_futex, 0, {AT(m->word), FUTEX_WAIT_BITSET, 7, length, 0, UINT32_MAX}},
                {SYS_futex, 0, {AT(m->word), FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 7, length, 0, -1UL}},
                {SYS_futex, 0, {AT(m->zeros), FUTEX_WAIT, 0, length, 0, 0}},
                {SYS_futex, 0, {AT(m->zeros), FUTEX_WAIT_PRIVATE, 0, length, 0, 0}},
                {SYS_futex, 0, {AT(m->zeros), FUTEX_WAIT_PRIVATE, 0, AT(&m->endless), 0, 0}},
                {SYS_futex, 0, {AT(m->semaphore), FUTEX_WAIT, 0, length, 0, 0}},
                {SYS_futex, 0, {AT(m->fds), FUTEX_WAIT_PRIVATE, 5, length, 0, 0}},
                {SYS_futex, 0, {AT(m->fds), FUTEX_WAIT_PRIVATE, 0, length, 0, 0}},
                {SYS_futex, 0, {AT(m->ready), FUTEX_WAIT_PRIVATE, 8, length, 0, 0}},
                /* the same registers and memory: what was seen decides */
                {SYS_nanosleep, 0, {AT(m->like_sleep), FUTEX_WAIT, 7, length, 0, 0}},
                {SYS_nanosleep, COP_ASLEEP_SLEEP, {AT(m->like_sleep), FUTEX_WAIT, 7, length, 0, 0}},
                {SYS_futex, COP_ASLEEP_FUTEX, {AT(m->like_sleep), FUTEX_WAIT, 7, length, 0, 0}},
                {SYS_poll, COP_ASLEEP_POLL, {AT(m->like_sleep), 0, 7, length, 0, 0}},
                {SYS_futex, COP_ASLEEP_FUTEX, {AT(m->fds), FUTEX_WAIT_BITSET, 900, length, 0, 1}},
                {SYS_nanosleep, COP_ASLEEP_SLEEP, {AT(m->semaphore), 0, 0, length, 0, 0}},
                /* but not where it cannot be that */
                {SYS_nanosleep, COP_ASLEEP_FUTEX, {length, 0, 0, invalid, 0, 0}},
                {SYS_poll, COP_ASLEEP_SLEEP, {AT(m->fds), 1, 900, 0, 0, 0}},
        };

        CHECK_ROWS(rows);
}

TEST(from_memory)
{
        static struct memory high;

        high = filled;
        check_memory(&high);
}

TEST(from_memory_at_small_addresses)
{
        struct memory *low = mmap((void *)LOW, sizeof(*low), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

        ASSERT(low == (void *)LOW);
        *low = filled;
        check_memory(low);
        munmap(low, sizeof(*low));
}

/* ---- which states of a thread it is asked for ---- */

static const unsigned char insn[] = {0x0f, 0x05}, other_insn[] = {0x0f, 0x0b};

static uint64_t ask(uint64_t orig_rax, uint64_t rax, const unsigned char *rip)
{
        _cleanup_close_ int mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        struct cop_proc p = {.mem_fd = mem_fd};
        struct user_regs_struct regs = {.orig_rax = orig_rax, .rax = rax, .rip = AT(rip), .rdx = 900};

        return cop_restarted_call(&p, &regs, COP_ASLEEP_UNKNOWN);
}

TEST(interrupted_or_before_the_instruction)
{
        const uint64_t mark = 77UL << 32;

        ASSERT_EQ(ask(SYS_restart_syscall, RESTARTBLOCK, insn), SYS_poll);
        ASSERT_EQ(ask(SYS_restart_syscall | mark, RESTARTBLOCK, other_insn), SYS_poll);
        ASSERT_EQ(ask(-1UL, SYS_restart_syscall, insn), SYS_poll);
        ASSERT_EQ(ask(-1UL, SYS_restart_syscall | mark, insn), SYS_poll);
        ASSERT_EQ(ask(SYS_restart_syscall, SYS_restart_syscall, insn), SYS_poll);
        /* Turned back by the kernel, and not yet in user mode: the number is still there. */
        ASSERT_EQ(ask(SYS_nanosleep, SYS_restart_syscall, insn), SYS_nanosleep);
        ASSERT_EQ(ask(SYS_clock_nanosleep, SYS_restart_syscall, insn), SYS_clock_nanosleep);
        ASSERT_EQ(ask(SYS_futex | mark, SYS_restart_syscall, insn), SYS_futex);
}

TEST(anything_else)
{
        ASSERT_EQ(ask(SYS_nanosleep, RESTARTBLOCK, insn), 0);
        ASSERT_EQ(ask(-1UL, SYS_restart_syscall, other_insn), 0);
        ASSERT_EQ(ask(SYS_read, SYS_restart_syscall, insn), 0); /* so many bytes */
        ASSERT_EQ(ask(SYS_restart_syscall, 0, insn), 0);
}

/* It comes from a handler that has run, and is the program's. */
TEST(interrupted_by_a_handler)
{
        struct user_regs_struct regs = {.orig_rax = SYS_restart_syscall, .rax = (uint64_t)-EINTR, .rip = AT(insn)};

        ASSERT(!cop_was_interrupted(&regs));
        ASSERT(!cop_rewind_interrupted(&regs));
        ASSERT_EQ(ask(SYS_restart_syscall, (uint64_t)-EINTR, insn), 0);
        regs.orig_rax = SYS_epoll_wait;
        ASSERT(cop_was_interrupted(&regs));
}
