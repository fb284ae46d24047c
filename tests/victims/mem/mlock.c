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

int main(void)
{
        char *a = ANON(20 * PAGE, RW), *b = ANON(40 * PAGE, RW), perms[8], flags[256];

        fill(a, 20 * PAGE, 1);
        CHECK(mlock(a, 20 * PAGE) == 0 && mlock2(b, 40 * PAGE, MLOCK_ONFAULT) == 0);
        int st;
        pid_t pid = fork();
        if (pid == 0) { /* of its own, with all that comes */
                if (mlockall(MCL_FUTURE) != 0)
                        _exit(1);
                victim_wait();
                long before = locked_kb();
                char *c = ANON(16 * PAGE, RW);
                _exit(c != MAP_FAILED && locked_kb() - before >= 64 ? 0 : 2);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(a, 20 * PAGE, 1);
        mapping_of(a, perms, flags, sizeof(flags));
        CHECK(strstr(flags, " lo "));
        mapping_of(b, perms, flags, sizeof(flags));
        CHECK(strstr(flags, " lo "));
        CHECK(locked_kb() >= 240);
        CHECK(munlock(a, 20 * PAGE) == 0 && locked_kb() < 240);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
        if (WEXITSTATUS(st))
                victim_fail("MCL_FUTURE: check %d", WEXITSTATUS(st));
        victim_pass();
}
