/* Sessions that tell how processes came about: children from before their parent's setsid, of a parent that was itself such a child or
 * is an orphan, and orphans of one session with two adopters, one above the other. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

enum { TOP, MIDDLE, LOW, PASSED, REAPER, BETWEEN, LEADER, CALLED, EARLY, UPPER, HOST, LOWER, ALL };

static struct shared {
        struct row {
                volatile pid_t pid, parent, sid;
                volatile int done, ok;
        } row[ALL];
        volatile int adopted, turn, go;
} * shared;

static void stay(int index)
{
        struct row *r = &shared->row[index];

        r->pid = getpid();
        while (!shared->adopted)
                usleep(500);
        r->parent = getppid();
        r->sid = getsid(0);
        while (!shared->go)
                usleep(2000);
        r->ok = getpid() == r->pid && getppid() == r->parent && getsid(0) == r->sid;
        r->done = 1;
        while (shared->go != 2)
                usleep(500);
        _exit(0);
}

static void await(int index)
{
        while (!shared->row[index].pid)
                usleep(500);
}

/* Each makes its session when it has a child. */
static void nest(int index)
{
        while (index < LOW && fork() == 0)
                index++;
        if (index < LOW) {
                await(index + 1);
                setsid();
        }
        stay(index);
}

/* A child of one that ends: `index` is then adopted. */
static void orphan(int index)
{
        pid_t middle = fork();

        if (middle == 0) {
                if (fork() == 0)
                        stay(index);
                await(index);
                _exit(0);
        }
        waitpid(middle, NULL, 0);
}

static void become_reaper(void)
{
        setsid();
        orphan(PASSED);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        stay(REAPER);
}

/* Adopted past the parent of its session's leader. */
static void call(void)
{
        pid_t middle;

        if (fork() != 0)
                stay(BETWEEN);
        setsid();
        middle = fork();
        if (middle == 0) {
                if (fork() == 0) {
                        if (fork() == 0)
                                stay(EARLY);
                        await(EARLY);
                        setsid();
                        stay(CALLED);
                }
                await(CALLED);
                _exit(0);
        }
        waitpid(middle, NULL, 0);
        stay(LEADER);
}

/* One that leads a session for two adopters, and ends. */
static void host(void)
{
        pid_t leader;

        setsid();
        leader = fork();
        if (leader == 0) {
                setsid();
                orphan(UPPER);
                shared->turn = 1;
                while (shared->turn != 2)
                        usleep(500);
                orphan(LOWER);
                _exit(0);
        }
        while (shared->turn != 1)
                usleep(500);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        shared->turn = 2;
        waitpid(leader, NULL, 0);
        stay(HOST);
}

int main(void)
{
        void (*const start[])(void) = {become_reaper, call, host};
        struct row *r;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        r = shared->row;
        if (fork() == 0)
                nest(TOP);
        for (unsigned i = 0; i < sizeof(start) / sizeof(start[0]); i++)
                if (fork() == 0)
                        start[i]();
        for (int i = 0; i < ALL; i++)
                await(i);
        shared->adopted = 1;
        for (int i = 0; i < ALL; i++)
                while (!r[i].sid)
                        usleep(500);
        CHECK(r[LOW].sid == getsid(0) && r[LOW].parent == r[MIDDLE].pid && r[MIDDLE].sid == r[MIDDLE].pid);
        CHECK(r[PASSED].parent == getpid() && r[PASSED].sid == r[REAPER].pid);
        CHECK(r[CALLED].parent == getpid() && r[EARLY].parent == r[CALLED].pid && r[EARLY].sid == r[LEADER].pid);
        CHECK(r[LEADER].parent == r[BETWEEN].pid);
        CHECK(r[UPPER].parent == getpid() && r[LOWER].parent == r[HOST].pid && r[UPPER].sid == r[LOWER].sid);
        victim_ready();
        victim_wait();
        shared->go = 1;
        for (int i = 0; i < ALL; i++) {
                for (int k = 0; k < 3000 && !r[i].done; k++)
                        usleep(1000);
                if (!r[i].ok)
                        victim_fail("process %d has another parent or session", i);
        }
        shared->go = 2;
        victim_pass();
}
