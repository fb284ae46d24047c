/* The personality of each thread, which is its own: another name of the machine, addresses that are not random, an old release; handed
 * to children. */
#include <pthread.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "../victim.h"

static const char *bad;
static volatile int ready;

static void *older(void *unused)
{
        struct utsname u;

        if (personality(UNAME26) < 0)
                bad = "a thread cannot be of another time";
        ready = 1;
        victim_wait();
        if (personality(0xffffffff) != UNAME26 || uname(&u) != 0 || strncmp(u.release, "2.6.", 4) != 0)
                bad = "personality of a thread";
        return unused;
}

int main(void)
{
        int mine = PER_LINUX32 | ADDR_NO_RANDOMIZE, status;
        struct utsname u;
        pthread_t t;

        CHECK(pthread_create(&t, NULL, older, NULL) == 0);
        while (!ready)
                usleep(1000);
        pid_t plain = fork();
        if (plain == 0) {
                victim_wait();
                _exit(personality(0xffffffff) == PER_LINUX ? 0 : 1);
        }
        CHECK(personality((unsigned long)mine) == PER_LINUX);
        victim_ready();
        victim_wait();
        CHECK(personality(0xffffffff) == mine);
        CHECK(uname(&u) == 0 && strcmp(u.machine, "i686") == 0);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(waitpid(plain, &status, 0) == plain && status == 0);
        pid_t child = fork();
        if (child == 0)
                _exit(personality(0xffffffff) == mine ? 0 : 1);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
