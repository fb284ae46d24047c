/* An orphan in the session of a living leader, among siblings of the leader with smaller numbers than its own: what rebuilds it must
 * not be in the way of the others meanwhile. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

#define SIBLINGS 40
#define LEADER SIBLINGS
#define ORPHAN (SIBLINGS + 1)
#define ALL (SIBLINGS + 2)

static struct shared {
        struct row {
                volatile pid_t pid, parent, sid;
                volatile int done, ok;
        } row[ALL];
        volatile int made, adopted, go;
} * shared;

static void stay(int index)
{
        struct row *r = &shared->row[index];

        r->parent = getppid();
        r->sid = getsid(0);
        r->pid = getpid();
        while (!shared->go)
                usleep(2000);
        r->ok = getpid() == r->pid && getppid() == r->parent && getsid(0) == r->sid;
        r->done = 1;
        _exit(0);
}

static void lead(void)
{
        setsid();
        while (!shared->made)
                usleep(500);
        pid_t middle = fork();
        if (middle == 0) {
                pid_t self = getpid();
                if (fork() == 0) {
                        while (getppid() == self)
                                usleep(500);
                        stay(ORPHAN);
                }
                _exit(0);
        }
        waitpid(middle, NULL, 0);
        stay(LEADER);
}

int main(void)
{
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        pid_t leader = fork();
        if (leader == 0)
                lead();
        for (int i = 0; i < SIBLINGS; i++)
                if (fork() == 0)
                        stay(i);
        shared->made = 1;
        for (int i = 0; i < ALL; i++)
                while (!shared->row[i].pid)
                        usleep(500);
        CHECK(shared->row[ORPHAN].parent == getpid() && shared->row[ORPHAN].sid == leader);
        victim_ready();
        victim_wait();
        shared->go = 1;
        for (int i = 0; i < ALL; i++) {
                for (int k = 0; k < 3000 && !shared->row[i].done; k++)
                        usleep(1000);
                if (!shared->row[i].ok)
                        victim_fail("process %d has another number, parent or session", i);
        }
        victim_pass();
}
