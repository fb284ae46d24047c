/* mlock, mlock2 (on fault) and mlockall(MCL_FUTURE): what was locked is, and new memory is locked from the start. */
#include "../mem.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static long locked_kb(void)
{
        char line[128];
        long kb = -1;
        FILE *f = fopen("/proc/self/status", "r");

        while (f && fgets(line, sizeof(line), f))
                sscanf(line, "VmLck: %ld", &kb);
        if (f)
                fclose(f);
        return kb;
}

/* A process of its own, with all that comes. */
static pid_t fork_locked(int mode)
{
        char perms[8], flags[256], byte;
        unsigned char there[16];
        int done[2];

        CHECK(pipe(done) == 0);
        pid_t pid = fork();
        if (pid != 0) {
                CHECK(read(done[0], &byte, 1) == 1 && close(done[0]) == 0 && close(done[1]) == 0);
                return pid;
        }
        if (mlockall(mode) != 0)
                _exit(1);
        CHECK(write(done[1], "", 1) == 1);
        victim_wait();
        long before = locked_kb();
        char *c = ANON(16 * PAGE, RW);
        if (c == MAP_FAILED || locked_kb() - before < 64)
                _exit(2);
        mapping_of(c, perms, flags, sizeof(flags));
        if (!strstr(flags, " lo ") || !strstr(flags, " lf ") != !(mode & MCL_ONFAULT))
                _exit(3);
        if (mincore(c, 16 * PAGE, there) != 0 || (there[15] & 1) != !(mode & MCL_ONFAULT))
                _exit(4);
        _exit(0);
}

int main(void)
{
        char *a = ANON(20 * PAGE, RW), *b = ANON(40 * PAGE, RW), perms[8], flags[256];

        fill(a, 20 * PAGE, 1);
        CHECK(mlock(a, 20 * PAGE) == 0 && mlock2(b, 40 * PAGE, MLOCK_ONFAULT) == 0);
        pid_t pids[3] = {fork_locked(MCL_FUTURE), fork_locked(MCL_FUTURE | MCL_ONFAULT),
                         fork_locked(MCL_FUTURE | MCL_CURRENT)};
        int st;
        victim_ready();
        victim_wait();
        CHECK_FILLED(a, 20 * PAGE, 1);
        mapping_of(a, perms, flags, sizeof(flags));
        CHECK(strstr(flags, " lo "));
        mapping_of(b, perms, flags, sizeof(flags));
        CHECK(strstr(flags, " lo "));
        CHECK(locked_kb() >= 240);
        CHECK(munlock(a, 20 * PAGE) == 0 && locked_kb() < 240);
        for (int i = 0; i < 3; i++) {
                CHECK(waitpid(pids[i], &st, 0) == pids[i] && WIFEXITED(st));
                if (WEXITSTATUS(st))
                        victim_fail("MCL_FUTURE in process %d: check %d", i, WEXITSTATUS(st));
        }
        mapping_of(ANON(16 * PAGE, RW), perms, flags, sizeof(flags));
        CHECK(!strstr(flags, " lo "));
        victim_pass();
}
