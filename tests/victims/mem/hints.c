/* Hints that stay with memory: HUGEPAGE, NOHUGEPAGE, DONTFORK, DONTDUMP, WIPEONFORK, MERGEABLE, SEQUENTIAL, RANDOM. */
#include "../mem.h"

static const struct row {
        int advice;
        const char *flag;
} rows[] = {
        {MADV_HUGEPAGE, " hg "},   {MADV_NOHUGEPAGE, " nh "}, {MADV_DONTFORK, " dc "}, {MADV_DONTDUMP, " dd "},
        {MADV_WIPEONFORK, " wf "}, {MADV_SEQUENTIAL, " sr "}, {MADV_RANDOM, " rr "},   {MADV_MERGEABLE, " mg "},
};
#define N (sizeof(rows) / sizeof(rows[0]))

int main(void)
{
        char *m[N], perms[8], flags[256];
        int had[N], st;

        for (size_t i = 0; i < N; i++) {
                m[i] = ANON(64 * PAGE, RW);
                /* A hole after each keeps them apart. */
                ANON(PAGE, PROT_NONE);
                fill(m[i], 32 * PAGE, i);
                had[i] = madvise(m[i], 64 * PAGE, rows[i].advice) == 0;
                mapping_of(m[i], perms, flags, sizeof(flags));
                had[i] = had[i] && strstr(flags, rows[i].flag);
        }
        victim_ready();
        victim_wait();
        for (size_t i = 0; i < N; i++) {
                mapping_of(m[i], perms, flags, sizeof(flags));
                if (had[i] && !strstr(flags, rows[i].flag))
                        victim_fail("the hint%s is gone: %s", rows[i].flag, flags);
                if (rows[i].advice != MADV_WIPEONFORK)
                        CHECK_FILLED(m[i], 32 * PAGE, i);
                CHECK_ZERO(m[i] + 32 * PAGE, 32 * PAGE);
        }
        fill(m[4], 32 * PAGE, 44);
        pid_t pid = fork();
        if (pid == 0)
                _exit(not_zero(m[4], 64 * PAGE) < 0 ? 0 : 1);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        CHECK_FILLED(m[4], 32 * PAGE, 44);
        CHECK(madvise(m[4], 64 * PAGE, MADV_KEEPONFORK) == 0);
        pid = fork();
        if (pid == 0) {
                signal(SIGSEGV, SIG_DFL);
                volatile char c = m[2][0]; /* DONTFORK: not there */
                (void)c;
                _exit(0);
        }
        CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
        victim_pass();
}
